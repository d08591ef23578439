"""CSV tables and folders of images."""

import numpy as np
import pytest
import torch
from PIL import Image

from surefoot.data import DataError, load


@pytest.fixture
def table(tmp_path):
    def write(text, encoding="utf-8"):
        (tmp_path / "t.csv").write_bytes(text.encode(encoding))
        return tmp_path / "t.csv"

    return write


def test_csv_with_header(table):
    data = load(table("age,body mass,target\n1,-2.5e1,3.5\n.5,+4.,6\n"), test_fraction=0.5)
    assert data.X.tolist() == [[1, -25], [0.5, 4]] and data.Y.tolist() == [[3.5], [6]]
    assert data.feature_names == ("age", "body mass") and data.labels is None
    assert int(data.split.sum()) == 1 and data.X.is_contiguous()


def test_csv_without_header_blank_lines_quotes_and_mark(table):
    data = load(table('\ufeff1, 2,0\r\n\r\n"3",4,1\r\n'))
    assert data.X.tolist() == [[1, 2], [3, 4]] and data.feature_names is None
    assert data.labels.tolist() == [0, 1] and data.Y.tolist() == [[0], [1]]


@pytest.mark.parametrize("spelled", ["2", "2.", "2.0", "+2", "2.000e+00", "20e-1", "002"])
def test_csv_target_of_whole_numbers_is_a_label_however_it_is_written(table, spelled):
    data = load(table(f"1,{spelled}\n2,3\n"))
    assert data.labels.tolist() == [2, 3] and data.Y.tolist() == [[2], [3]]


@pytest.mark.parametrize("spelled", ["2.5", "1e15", "2.0000001", "-1e300"])
def test_csv_target_that_is_no_label(table, spelled):
    assert load(table(f"1,{spelled}\n2,3\n")).labels is None


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "empty; expected at least one row"),
        ("\n\n", "empty; expected at least one row"),
        ("a,b\n", "only a header"),
        ("1\n2\n", "line 1: one column found"),
        ("1 2\n", "line 1: one column found.*separated by commas"),
        ("a,b\n1,2\n1,2,3\n", "line 3: 3 cells, but the first row has 2"),
        ("1,2\n3\n", "line 2: 1 cells, but the first row has 2"),
        ("a,b\n1,2\nred,3\n", r"line 3, column 1 \('a'\): 'red' is not a number"),
        ("1,2\n3,1_000\n", r"line 2, column 2: '1_000' is not a number"),
        ("1,red\n3,1\n", r"line 1, column 2: 'red' is not a number.*header has no numbers"),
        ("1,2\n,4\n", r"line 2, column 1: missing value \(''\)"),
        ("1,2\nNA,4\n", r"line 2, column 1: missing value \('NA'\)"),
        ("a,b\n1,NaN\n", r"line 2, column 2 \('b'\): missing value"),
        ("1,2\n3,-inf\n", "line 2, column 2: -inf is not finite"),
        ("1,2\n3,1e999\n", "line 2, column 2: 1e999 is beyond the range of float64"),
        (",a,b\n0,1,2\n", "line 1: column 1 has no name in the header.*row index"),
        ('1,2\n"3,4\n', "not a CSV table"),
    ],
)
def test_csv_errors(table, text, message):
    with pytest.raises(DataError, match=message):
        load(table(text))


def test_csv_rows_with_missing_values_are_dropped_where_that_is_asked_for(table):
    path = table("a,b,c\n1,2,0\n?,3,1\n4,NA,0\n5,6,\n7,8,1\n")
    data = load(path, missing="drop", test_fraction=0)
    assert data.X.tolist() == [[1, 2], [7, 8]] and data.Y.tolist() == [[0], [1]] and data.labels.tolist() == [0, 1]
    assert data.notes == ("3 of 5 rows dropped, which have a missing value",)
    with pytest.raises(DataError, match=r"line 3, column 1 \('a'\): missing value"):
        load(path, missing="error")
    assert load(table("1,2\n3,4\n"), missing="drop").notes == ()
    with pytest.raises(DataError, match="each of the 2 rows has a missing value"):
        load(table("1,\n,4\n"), missing="drop")
    with pytest.raises(DataError, match="line 2, column 1: 'red' is not a number"):
        load(table("1,2\nred,4\n"), missing="drop")


def test_missing_values_are_of_tables(table):
    with pytest.raises(DataError, match="missing='drop' is for tables"):
        load("diabetes", missing="drop")
    with pytest.raises(DataError, match="missing is 'skip'; expected 'error', 'drop' or 'mean'"):
        load(table("1,2\n3,4\n"), missing="skip")


def test_csv_in_another_encoding(table):
    with pytest.raises(DataError, match=r"not UTF-8 text \(byte 3\)"):
        load(table("a,bé\n1,2\n", "latin-1"))


def save(path, array, mode=None):
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(np.asarray(array), mode).save(path) if mode else Image.fromarray(np.asarray(array)).save(path)


GREY = np.array([[0, 51], [102, 255]], np.uint8)


def test_folder_of_classes(tmp_path):
    for name in ("zebra/1.png", "ant/2.PNG", "ant/1.png"):
        save(tmp_path / name, GREY if "1" in name else 255 - GREY)
    (tmp_path / ".cache").mkdir()
    (tmp_path / "notes.txt").write_text("other types are passed over")
    (tmp_path / "ant" / ".hidden.png").write_text("")
    data = load(tmp_path, test_fraction=0.5)
    assert data.labels.tolist() == [0, 0, 1] and data.name == tmp_path.name
    assert torch.equal(data.X[0], torch.tensor([0, 0.2, 0.4, 1], dtype=torch.float64))
    assert torch.equal(data.X[1], torch.tensor([1, 0.8, 0.6, 0], dtype=torch.float64))
    assert int(data.split.sum()) == 1 and not data.split[2]  # the single zebra stays a train row


def test_flat_folder_of_several_sizes(tmp_path):
    save(tmp_path / "b.png", GREY)
    save(tmp_path / "a.png", np.full((2, 3, 3), 255, np.uint8))
    save(tmp_path / "c.jpeg", np.full((8, 8), 51, np.uint8))
    data = load(tmp_path)
    assert list(data.X) == ["a.png", "b.png", "c.jpeg"] and data.labels is None and data.split is None
    assert data.X["a.png"].shape == (2, 3, 3) and (data.X["a.png"] == 1).all()
    assert torch.equal(data.X["b.png"], torch.tensor([[0, 0.2], [0.4, 1]], dtype=torch.float64))
    torch.testing.assert_close(data.X["c.jpeg"], torch.full((8, 8), 0.2, dtype=torch.float64), atol=1 / 255, rtol=0)


def test_pixel_formats(tmp_path):
    Image.fromarray(np.array([[0, 65535]], np.uint16)).save(tmp_path / "a16.png")
    Image.fromarray(GREY > 60).save(tmp_path / "bilevel.png")
    Image.fromarray(GREY).convert("P").save(tmp_path / "palette.png")
    Image.fromarray(np.full((1, 1, 4), 255, np.uint8)).save(tmp_path / "opaque.png")
    X = load(tmp_path).X
    assert X["a16.png"].tolist() == [[0, 1]]
    assert X["bilevel.png"].tolist() == [[0, 0], [1, 1]]
    assert torch.equal(X["palette.png"][..., 1] * 255, torch.from_numpy(GREY.astype(float)))
    assert X["opaque.png"].tolist() == [[[1, 1, 1]]]


def test_folder_errors(tmp_path):
    def refuses(folder, message):
        with pytest.raises(DataError, match=message):
            load(folder)

    (tmp_path / "empty").mkdir()
    refuses(tmp_path / "empty", "no .png or .jpg images and no subfolders")
    save(tmp_path / "mixed" / "a.png", GREY)
    (tmp_path / "mixed" / "sub").mkdir()
    refuses(tmp_path / "mixed", r"holds images \(a.png\) beside subfolders \(sub\)")
    (tmp_path / "mixed" / "a.png").rename(tmp_path / "a.png")
    refuses(tmp_path / "mixed", "sub: class without .png or .jpg images")
    save(tmp_path / "mixed" / "sub" / "a.png", GREY)
    save(tmp_path / "mixed" / "sub" / "b.png", GREY[:1])
    refuses(tmp_path / "mixed", r"b.png: has shape \(1, 2\), but the first image has \(2, 2\)")

    flat = tmp_path / "flat"
    flat.mkdir()
    Image.fromarray(np.full((1, 1, 4), 9, np.uint8)).save(flat / "a.png")
    refuses(flat, "a.png: has transparent pixels")
    whole = (tmp_path / "a.png").read_bytes()
    for content in (b"", b"hello", whole[:30], whole[:45]):
        (flat / "a.png").write_bytes(content)
        refuses(flat, "a.png: not a readable PNG or JPEG image")
    Image.fromarray(np.ones((1, 1), np.float32)).save(flat / "a.png", format="TIFF")
    refuses(flat, "a.png: not a readable PNG or JPEG image")
