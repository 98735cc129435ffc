"""A first line that is a row already is refused; numbers that can be names are not."""

import pytest

from steelyard.errors import TableError
from steelyard.tables import read_table

IRIS = "5.1,3.5,1.4,0.2,setosa\n4.9,3.0,1.4,0.2,setosa\n6.3,3.3,6.0,2.5,virginica\n"


@pytest.mark.parametrize(
    "content",
    [
        IRIS,
        "5.1,3.5\n4.9,3.0\n",
        "5.1,3.5\n",  # nothing below
        "5,1;3,5\n4,9;3,0\n",
        "1,1,2\n3,4,5\n",  # names that come twice
        "39, State-gov, 77516, <=50K\n50, Private, 83311, <=50K\n38, ?, 21564, >50K\n",
        "18,8,?,buick\n15,8,165,ford\n16,8,150,fiat\n",
        "2020-01-03,a\n2020-01-04,b\n",
        "true,0.5,a\nfalse,0.7,b\n",
        "12:30,a\n13:30,b\n",
        "Bob,1\nAnn,2\nBob,3\n",  # a word that comes again beside a number that could be a name
        "p,x,s,p\ne,x,s,p\np,y,s,e\n",  # words that all come again, some of them twice
    ],
)
def test_a_first_line_that_looks_like_data(tmp_path, content):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(TableError, match=r"t\.csv: the first line looks like data \(.*, not like column names\. Add"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("2019,2020,2021", "1.5,2.5,3.5"),
        ("0,1,2", "5,6,7"),
        ("1,2,3", "5,6,7"),
        (",0,1", "0,5,6"),
        ("country,2019,2020", "NO,1.5,2.5"),
        ("400,402,404,406", "0.1,0.2,0.3,0.4"),
        ("2020-01-01,2020-01-02", "1.5,2.5"),  # days as names of numbers
        ("a,b,c", "x,y,z"),
        ("name,age", "name,3"),
        ("x", "1"),
        ("NA,Cl", "1,2"),
        ("a,b", ",1"),
    ],
)
def test_headers_that_are_headers(tmp_path, header, row):
    (tmp_path / "t.csv").write_text(f"{header}\n{row}\n{row}\n")
    assert read_table(tmp_path / "t.csv").names == header.split(",")


def test_names_that_come_twice_in_a_real_header(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,a\n1,2,3\n")
    with pytest.raises(TableError, match="'a' comes more than once"):
        read_table(tmp_path / "t.csv")
