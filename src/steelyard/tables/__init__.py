"""Tables as people have them, and how they become numbers."""

from steelyard.tables.conversion import as_frame
from steelyard.tables.encoding import Encoding, learn_encoding, match_frames
from steelyard.tables.files import TableFile, regular_files
from steelyard.tables.frame import Column, Frame
from steelyard.tables.pair import TablePair, encode_pair
from steelyard.tables.readers import count_rows, place_of_row, read_blocks, read_table
from steelyard.tables.table_blocks import TableBlocks

__all__ = [
    "Column",
    "Encoding",
    "Frame",
    "TableBlocks",
    "TableFile",
    "TablePair",
    "as_frame",
    "count_rows",
    "encode_pair",
    "learn_encoding",
    "match_frames",
    "place_of_row",
    "read_blocks",
    "read_table",
    "regular_files",
]
