"""Tables as people have them, and how they become numbers."""

from steelyard.tables.encoding import Encoding, learn_encoding, match_frames
from steelyard.tables.frame import Column, Frame, as_frame
from steelyard.tables.pair import TablePair, encode_pair
from steelyard.tables.readers import place_of_row, read_table

__all__ = [
    "Column",
    "Encoding",
    "Frame",
    "TablePair",
    "as_frame",
    "encode_pair",
    "learn_encoding",
    "match_frames",
    "place_of_row",
    "read_table",
]
