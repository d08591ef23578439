"""Options of tables, and tables that mean harm or were saved badly."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from surefoot.data import Data, DataError, load

Write = Callable[..., Path]
MIXED = "age,colour,price\n1,red,10\n2,blue,20\n,red,30\n4,,40\n5,green,50\n"


@pytest.fixture
def table(tmp_path: Path) -> Write:
    def write(text: str | bytes, name: str = "t.csv") -> Path:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path / name

    return write


# -- targets ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["b", 2, "2", -2, ["b"], [2], np.int64(2)])
def test_a_target_by_name_or_number(table: Write, target: object) -> None:
    data = load(table("a,b,c\n1,2.5,3\n4,5,6\n"), target=target)
    assert data.Y.tolist() == [[2.5], [5]] and data.X.tolist() == [[1, 3], [4, 6]]
    assert data.feature_names == ("a", "c") and data.labels is None
    assert data.notes == ("the target is column 2 ('b')",)


@pytest.mark.parametrize("target", ["c,a", "c, a", ["c", "a"], [3, 1], (-1, "a")])
def test_several_targets_in_the_order_given(table: Write, target: object) -> None:
    data = load(table("a,b,c\n1,2,3\n4,5,6\n"), target=target)
    assert data.Y.tolist() == [[3, 1], [6, 4]] and data.X.tolist() == [[2], [5]] and data.labels is None
    assert data.notes == ("the targets are column 3 ('c') and column 1 ('a')",)


def test_a_name_that_has_a_comma_or_is_no_ascii(table: Write) -> None:
    path = table('"größe, m";Ж\n1;2\n')
    assert load(path, target="größe, m").Y.tolist() == [[1]] and load(path, target="Ж").Y.tolist() == [[2]]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("colr", r"has no column 'colr'; did you mean 'colour'\? Its columns are 'age', 'colour', 'price'"),
        (0, "target is 0; columns are counted from 1 to 3, and -1 is the last"),
        (4, "target is 4; columns are counted"),
        (-4, "target is -4; columns are counted"),
        (True, "has no column True"),
        ([], r"target is \[\], which names no column"),
        ("", "has no column ''; its columns are 'age'"),
        (1.5, r"target is 1\.5; expected the name of a column, its number, or a list"),
        ({"age"}, "target is {'age'}; expected the name"),
        (["age", None], "expected the name of a column"),
        (["age", 1], r"names column 1 \('age'\) twice"),
        ([1, 2, 3], "leaves no column for the inputs"),
        (["colour", "age"], r"column 2 \('colour'\) is text, which is a target of its own only"),
    ],
)
def test_targets_that_are_not_there(table: Write, target: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(table(MIXED), target=target, categories="one-hot", missing="drop")


def test_a_name_in_a_table_without_names(table: Write) -> None:
    with pytest.raises(
        DataError, match="target is 'price', but the table has no header; give the number of the column, 1 to 2"
    ):
        load(table("1,2\n3,4\n"), target="price")


# -- separators and decimal signs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("1.5,2.5\n3.5,4.5\n", "t.csv", {}),
        ("1.5;2.5\n3.5;4.5\n", "t.csv", {}),
        ("1.5\t2.5\r\n3.5\t4.5\r\n", "t.csv", {}),
        ("1.5,\t2.5\n3.5,\t4.5\n", "t.csv", {}),
        ("1.5\t2.5\n3.5\t4.5\n", "t.tsv", {}),
        ("1.5|2.5\n3.5|4.5\n", "t.csv", {"separator": "|"}),
        ("1.5 2.5\n3.5 4.5\n", "t.csv", {"separator": " "}),
        ("1.5\t2.5\n3.5\t4.5\n", "t.csv", {"separator": "tab"}),
        ("1,5;2,5\n3,5;4,5\n", "t.csv", {"decimal": ","}),
        ("1,5\t2,5e0\n+3,5\t,45e1\n", "T.TSV", {"decimal": ","}),
        ('"1,5","2,5"\n"3,5","4,5"\n', "t.csv", {"decimal": ","}),
    ],
)
def test_separators_and_decimal_signs(table: Write, text: str, name: str, options: dict[str, str]) -> None:
    data = load(table(text, name), **options)
    assert data.X.tolist() == [[1.5], [3.5]] and data.Y.tolist() == [[2.5], [4.5]]


def test_separators_inside_quotes(table: Write) -> None:
    data = load(table('a,"b;c,d",y\n"1",2,"3"\n'))
    assert data.feature_names == ("a", "b;c,d") and data.X.tolist() == [[1, 2]]
    data = load(table('town,y\n"Ulm, old",1\n"say ""hi""\nthere",2\n'), categories="one-hot", test_fraction=0)
    assert data.feature_names == ("town=Ulm, old", 'town=say "hi"\nthere')


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"separator": ";;"}, "separator is ';;'; expected one character such as ';', or 'tab'"),
        ({"separator": ""}, "separator is ''"),
        ({"separator": 5}, "separator is 5; expected one character"),
        ({"separator": '"'}, "separator is '\"'"),
        ({"separator": ",", "decimal": ","}, "separator and decimal are both ','; they must differ"),
        ({"decimal": ";"}, "decimal is ';'; expected '.' or ','"),
        ({"categories": "ordinal"}, "categories is 'ordinal'; expected 'error' or 'one-hot'"),
    ],
)
def test_options_out_of_range(table: Write, options: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(table("1,2\n"), **options)


@pytest.mark.parametrize(
    "options", [{"target": "a"}, {"separator": ";"}, {"decimal": ","}, {"categories": "one-hot"}, {"missing": "mean"}]
)
def test_options_of_tables_are_refused_for_other_sources(options: dict[str, str]) -> None:
    (name, value) = next(iter(options.items()))
    with pytest.raises(DataError, match=f"diabetes: {name}='{value}' is for tables"):
        load("diabetes", **options)


# -- categories and missing values -----------------------------------------------------------------------------------------------


def test_text_and_missing_values_are_refused_with_the_option_that_takes_them(table: Write) -> None:
    path = table(MIXED)
    with pytest.raises(
        DataError, match=r"line 2, column 2 \('colour'\): 'red' is not a number; categories='one-hot' takes"
    ):
        load(path)
    with pytest.raises(
        DataError,
        match=r"line 4, column 1 \('age'\): missing value \(''\); 2 of 5 rows have one, in 'age' \(1\), 'colour' \(1\);",
    ):
        load(path, categories="one-hot")
    with pytest.raises(
        DataError, match=r"'x' is not a number \(2 columns hold text: column 1, column 3\); .*a header has no n"
    ):
        load(table("x,1,z\ny,2,z\n"))


def test_categories_become_columns(table: Write) -> None:
    data = load(table(MIXED), categories="one-hot", missing="drop", test_fraction=0)
    assert data.X.tolist() == [[1, 0, 0, 1], [2, 1, 0, 0], [5, 0, 1, 0]] and data.Y.tolist() == [[10], [20], [50]]
    assert data.feature_names == ("age", "colour=blue", "colour=green", "colour=red")
    assert data.notes == (
        "2 of 5 rows dropped, which have a missing value",
        "categories became columns of 0 and 1 ('colour': 'blue', 'green', 'red')",
    )


def test_missing_values_become_means_and_shares(table: Write) -> None:
    data = load(table(MIXED), categories="one-hot", missing="mean", test_fraction=0)
    assert data.X[:, 0].tolist() == [1, 2, 3, 4, 5] and data.X[3, 1:].tolist() == [0.25, 0.25, 0.5]
    assert data.notes[1] == "2 missing values filled in with means of the train rows, in 'age' (1), 'colour' (1)"


def test_means_and_categories_are_those_of_the_train_rows(table: Write) -> None:
    lines = [f"{row if row % 7 else ''},{'often' if row % 2 else f'once {row}'},{row}" for row in range(40)]
    data = load(table("\n".join(["x,c,y", *lines])), categories="one-hot", missing="mean", test_fraction=0.5)
    rows = data.Y[:, 0].long()
    train = data.train()
    known = [row for row in train.Y[:, 0].long().tolist() if row % 7]
    filled = data.X[rows % 7 == 0, 0]
    torch.testing.assert_close(filled, torch.full_like(filled, sum(known) / len(known)), atol=1e-12, rtol=0.0)
    assert data.feature_names[1:] == tuple(
        sorted(["c=often", *(f"c=once {row}" for row in train.Y[:, 0].long().tolist() if row % 2 == 0)])
    )
    unseen = data.split & (rows % 2 == 0)
    assert bool((data.X[unseen, 1:] == 0).all()) and bool((train.X[:, 1:].sum(1) == 1).all())
    assert (
        f"{int(unseen.sum())} held-out rows with a category of 'c' that no train row has: 0 in all of its columns"
        in data.notes
    )


def test_a_target_of_text_has_classes(table: Write) -> None:
    data = load(table(MIXED), target="colour", categories="one-hot", missing="drop", test_fraction=0)
    assert data.labels.tolist() == [2, 0, 1] and data.Y is None and data.class_names == ("blue", "green", "red")
    assert data.notes[-1] == "classes 0, 1, 2 of the target are 'blue', 'green', 'red'"
    assert data.one_hot(centred=False).Y.tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert data.classes(2, 0).class_names == ("red", "blue") and data.classes(2, 0).labels.tolist() == [0, 1]


def test_targets_are_not_filled_in(table: Write) -> None:
    path = table("a,b\n1,2\n2,\n,3\n")
    with pytest.raises(
        DataError, match=r"line 3, column 2 \('b'\): missing value; 1 of 3 rows has one.*a target cannot be filled"
    ):
        load(path, missing="mean")
    assert load(path, missing="drop", test_fraction=0).X.tolist() == [[1]]


def test_large_numbers_have_a_mean(table: Write) -> None:
    data = load(table("1.5e308,1\n1.7e308,1\n,1\n"), missing="mean", test_fraction=0)
    assert data.X[2, 0] == pytest.approx(1.6e308)


# -- tables that were saved badly, or to do harm ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", "only a header"),
        ("\ufeff", "empty"),
        ("a,b,a\n1,2,3\n", "columns 1 and 3 are both called 'a'; rename one of them"),
        ("a,,b\n1,2,3\n", "line 1: column 2 has no name"),
        ("a,b\n,1\n,2\n", r"line 2, column 1 \('a'\): missing value \(''\); 2 of 2 rows have one, in 'a' \(2\)"),
        ('a,b\n"1,234",2\n', "'1,234' is not a number with the decimal sign '.', no unit and thousands not separated"),
        ("a;b\n1 234;2\n", "'1 234' is not a number with the decimal sign"),
        ("a;b\n1'234,5;2\n", '"1\'234,5" is not a number with'),
        ("a;b\n1,5;2\n", "decimal=',' takes the other sign"),
        ("1,5;2,5\n3,5;4,5\n", "line 1, column 1: '1,5' is not a number with the decimal sign"),
        ("a,b\n12.5 %,1\n", "'12.5 %' is not a number with"),
        ("a,b\n2026-01-31,1\n", r"'2026-01-31' is a date, not a number; give numbers"),
        ("a,b\n31.1.2026,1\n", "'31.1.2026' is a date"),
        ("a,b\n-Infinity,1\n", "-Infinity is not finite"),
        ("a,b\n1,1\nx,2\n", r"line 3, column 1 \('a'\): 'x' is not a number, as that of line 2 is"),
        (b"a,b\n\0,1\n", r"line 2, column 1 \('a'\): '\\x00' is not a number"),
        (b"a,b\n1\0,1\n2,3", r"'1\\x00' is not a number, as that of line 3 is"),
        (b"\xff\xfea\0,\0b\0", "not UTF-8 text"),
        ("a,b\n" + "9" * 400 + ",1\n", "is beyond the range of float64"),
        ("a,b\n" + "x" * 200_000 + ",1\n", "not a CSV table .field larger than field limit"),
        ("a" * 500 + ",b\n1e999,2\n", r"\('a{39}…'\): 1e999 is beyond"),
    ],
)
def test_tables_that_are_refused(table: Write, text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(table(text))


def test_whatever_a_file_holds_it_is_read_or_refused(table: Write) -> None:
    pieces = [*'1-e.,;\t"\n\r\0ü\ufeff ?%\x1c\u2028', "a", "2.5", "red", "NA", "inf", "1e400", "2026-01-31", "1_0", "٣"]
    draw = random.Random(0)
    read = 0
    for index in range(400):
        text = "".join(draw.choices(pieces, k=draw.randrange(1, 30)))
        try:
            data = load(
                table(text if index % 2 else f"a,b,c\n1,x,2\n{text}"),
                categories=draw.choice(["error", "one-hot"]),
                missing=draw.choice(["error", "drop", "mean"]),
                separator=draw.choice([None, ";", "tab"]),
                target=draw.choice([None, "a", 1]),
            )
        except DataError:
            continue
        read += 1
        assert bool(data.X.isfinite().all())
    assert read


def test_a_column_without_values_has_no_mean(table: Write) -> None:
    with pytest.raises(DataError, match=r"column 1 \('a'\) has no value in any train row, and so no mean"):
        load(table("a,b\n,1\n,2\n"), missing="mean")
    with pytest.raises(DataError, match="each of the 2 rows has a missing value"):
        load(table("a,b\n,1\n,2\n"), missing="drop")


def test_mixed_columns_are_no_categories(table: Write) -> None:
    with pytest.raises(DataError, match="line 3, column 1: 'x' is not a number, as that of line 1 is"):
        load(table("1,1\n2,1\nx,2\n"), categories="one-hot")


def test_names_of_things_are_no_categories(table: Write) -> None:
    rows = "\n".join(f"id{row},{row}" for row in range(1001))
    with pytest.raises(DataError, match=r"column 1 has 1001 categories in 1001 rows, and at most 1000 are taken"):
        load(table(rows), categories="one-hot", test_fraction=0)


def test_a_row_and_a_byte_mark_and_line_ends(table: Write) -> None:
    data = load(table("\ufeffa;b\r\n1;2\r\n\r\n"))
    assert data.X.tolist() == [[1]] and data.feature_names == ("a",) and not data.split.any()


def test_very_wide_tables(table: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ",".join(f"c{index}" for index in range(50_000))
    data = load(table(f"{names}\n" + ",".join(["1"] * 50_000) + "\n"), target="c7")
    assert data.X.shape == (1, 49_999) and data.feature_names[7] == "c8"
    monkeypatch.setattr("surefoot._data.csv_table._LONGEST_LINE", 1000)
    with pytest.raises(DataError, match="a line has more than 1000 characters; this is no table of numbers"):
        load(table(",".join(["1"] * 50_000) + "\n"))


def test_class_names_fit_the_labels() -> None:
    X = torch.zeros(2, 1, dtype=torch.float64)
    for labels in (None, torch.tensor([0, 2]), torch.tensor([-1, 0])):
        with pytest.raises(DataError, match="2 class names do not fit the labels"):
            Data(X, labels=labels, class_names=("a", "b"))


def test_whole_numbers_of_any_size_are_read_as_before(table: Write) -> None:
    data = load(table(f"{2**53 + 1},{10**15 - 1}\n{math.pi!r},-3\n"))
    assert data.X.tolist() == [[float(2**53)], [math.pi]] and data.labels.tolist() == [10**15 - 1, -3]
