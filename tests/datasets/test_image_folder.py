import numpy as np
import pytest
from PIL import Image

from skslot.datasets import load_image_folder
from skslot.datasets._images import IMAGE_EXTENSIONS

NAMES = [
    "photo/cat/10.JPG",
    "photo/cat/9.png",
    "photo/dog/1.webp",
    "sketch/cat/1.png",
    "sketch/horse/a b.tiff",
]


def plant(root, names):
    """Empty files: the loaders list images and open none."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def write_csv(root, text, encoding="utf-8"):
    file = root / "images.csv"
    file.write_text(text, encoding=encoding)
    return file


def test_folder_gives_sorted_paths_labels_and_clients(tmp_path):
    images = load_image_folder(plant(tmp_path, NAMES[::-1]))
    assert images.paths.tolist() == [str(tmp_path / name) for name in NAMES]
    assert images.target.tolist() == ["cat", "cat", "dog", "cat", "horse"]
    assert images.client_ids.tolist() == ["photo"] * 3 + ["sketch"] * 2
    assert images.target_names.tolist() == ["cat", "dog", "horse"]
    assert images.client_names == ["photo", "sketch"]
    assert images.n_ignored == 0
    assert "split" not in images
    assert all(images[key].dtype.kind == "U" for key in ("paths", "target"))


def test_path_as_text_gives_the_same(tmp_path):
    plant(tmp_path, NAMES)
    np.testing.assert_array_equal(
        load_image_folder(str(tmp_path)).paths, load_image_folder(tmp_path).paths
    )


def test_what_is_not_an_image_is_ignored_and_counted(tmp_path):
    plant(tmp_path, NAMES)
    plant(tmp_path, ["README.txt", "photo/Thumbs.db", "photo/cat/notes.md"])
    plant(tmp_path, ["photo/cat/.hidden.png", ".cache/cat/1.png", "__MACOSX/cat/1.png"])
    images = load_image_folder(tmp_path)
    assert len(images.paths) == len(NAMES)
    assert images.n_ignored == 6


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("preview.png", "holds images itself.*one folder per client"),
        ("photo/1.png", r"photo/1.png is in no class folder.*<client>/<class>/<image>"),
        ("photo/cat/more/1.png", "photo/cat/more is a folder where images are"),
        ("photo/cow/notes.txt", "photo/cow holds no images.*delete the folder"),
        ("empty/.keep", "empty has no class folders"),
    ],
)
def test_nothing_is_left_out_in_silence(tmp_path, extra, message):
    plant(tmp_path, [*NAMES, extra])
    with pytest.raises(ValueError, match=message):
        load_image_folder(tmp_path)


def test_empty_folder(tmp_path):
    with pytest.raises(ValueError, match="has no folders.*one folder per client"):
        load_image_folder(tmp_path)


def test_missing_root(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere does not exist. Pass a fold"):
        load_image_folder(tmp_path / "nowhere")


def test_other_file(tmp_path):
    plant(tmp_path, ["images.zip"])
    with pytest.raises(ValueError, match="neither a folder nor a .csv file"):
        load_image_folder(tmp_path / "images.zip")


def test_every_extension_is_one_that_pillow_opens():
    Image.init()
    openable = {
        e for e, name in Image.registered_extensions().items() if name in Image.OPEN
    }
    assert openable >= IMAGE_EXTENSIONS


def test_csv_keeps_its_order_and_paths_are_relative_to_it(tmp_path, monkeypatch):
    plant(tmp_path, ["data/b.png", "data/a, 1.png", "elsewhere/scan.dcm"])
    outside = tmp_path / "elsewhere" / "scan.dcm"
    text = f'label,path,client\nyes,b.png,B\nno,"a, 1.png",A\nyes,{outside},B\n'
    file = write_csv(tmp_path / "data", text, encoding="utf-8-sig")
    monkeypatch.chdir(tmp_path)
    images = load_image_folder(file)
    assert images.paths.tolist() == [
        str(tmp_path / "data" / "b.png"),
        str(tmp_path / "data" / "a, 1.png"),
        str(outside),
    ]
    assert images.target.tolist() == ["yes", "no", "yes"]
    assert images.client_ids.tolist() == ["B", "A", "B"]
    assert "split" not in images


def test_csv_with_splits(tmp_path):
    plant(tmp_path, ["1.png", "2.png"])
    file = write_csv(
        tmp_path,
        "path, client, label, age, split\n1.png, A, x, 7, train\n2.png, A, y,, test\n",
    )
    assert load_image_folder(file).split.tolist() == ["train", "test"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "header that names the columns path, client, label.*first line is ''"),
        ("path;client;label\n1.png;A;x\n", "commas; its first line is 'path;client;l"),
        ("1.png,A,x\n", "its first line is '1.png,A,x'"),
        ("path,client,label\n", "lists no images"),
        ("path,client,label\n1.png,A,x\n1.png,,x\n", "line 3 has no client"),
        ("path,client,label\n1.png,A\n", "line 2 has no label"),
        ("path,client,label,split\n1.png,A,x,\n", "line 2 has no split"),
        ("path,client,label\n1.png,A,x,y\n", "line 2 has more fields than the header"),
        ('path,client,label\n"1.png,A,x\n', "cannot be read.*UTF-8"),
    ],
)
def test_wrong_csv_is_refused_with_its_place(tmp_path, text, message):
    plant(tmp_path, ["1.png"])
    with pytest.raises(ValueError, match=f"images.csv.*{message}"):
        load_image_folder(write_csv(tmp_path, text))


def test_csv_in_another_encoding(tmp_path):
    file = write_csv(tmp_path, "path,client,label\nä.png,A,x\n", encoding="latin-1")
    with pytest.raises(ValueError, match="Save it as CSV in UTF-8"):
        load_image_folder(file)


def test_missing_images_of_a_csv_are_counted_and_named(tmp_path):
    plant(tmp_path, ["1.png"])
    lines = [f"{number}.png,A,x" for number in range(1, 7)]
    file = write_csv(tmp_path, "\n".join(["path,client,label", *lines]))
    message = r"5 of 6 images .*/2.png, .*/3.png, .*/4.png and 2 more\. Paths are rel"
    with pytest.raises(FileNotFoundError, match=message):
        load_image_folder(file)


def test_root_of_a_wrong_type():
    with pytest.raises(ValueError, match="'root' parameter"):
        load_image_folder(3)
