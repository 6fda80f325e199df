import numpy as np
import pytest

from skslot.datasets import (
    load_digits_benchmark,
    load_domainnet,
    load_image_folder,
    load_office_home,
)

OFFICE = ["Art", "Clipart", "Product", "Real World"]
DOMAINS = ["clipart", "infograph", "painting", "quickdraw", "real", "sketch"]
DIGITS = ["MNIST", "SVHN", "Synth", "USPS"]


def plant(root, names):
    """Empty files: the loaders list images and open none."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def digits(root, spelled=str.lower):
    return plant(
        root,
        [
            f"{spelled(domain)}/{split}/{digit}/{number}.png"
            for domain in DIGITS
            for split, size in [("train", 2), ("test", 1)]
            for digit in range(10)
            for number in range(size)
        ],
    )


def office_home(root, domains=OFFICE, n_classes=65, size=10):
    return plant(
        root,
        [
            f"{domain}/class{label:02}/{number:05}.jpg"
            for domain in domains
            for label in range(n_classes)
            for number in range(size)
        ],
    )


def domainnet(root):
    for domain in DOMAINS:
        names = [
            f"{domain}/{label}/{domain}_{number}.jpg"
            for label in ["zebra", "aircraft_carrier"]
            for number in range(3)
        ]
        plant(root, [*names, f"{domain}/zebra/in_no_list.jpg"])
        lists = {"train": names[:2] + names[3:5], "test": [names[2], names[5]]}
        for split, listed in lists.items():
            lines = [f"{name} {344 * ('zebra' in name)}\n" for name in listed]
            (root / f"{domain}_{split}.txt").write_text("".join(lines))
    return root


@pytest.mark.parametrize("spelled", [str.lower, str.upper])
def test_digits_have_their_splits(tmp_path, spelled):
    images = load_digits_benchmark(digits(tmp_path, spelled))
    assert images.client_names == DIGITS
    assert images.target_names.tolist() == [str(digit) for digit in range(10)]
    assert (images.split == "train").sum() == 4 * 10 * 2
    assert (images.split == "test").sum() == 4 * 10 * 1
    path, client = images.paths[-1], images.client_ids[-1]
    expected = f"{spelled(client)}/{images.split[-1]}/{images.target[-1]}/0.png"
    assert path == str(tmp_path / expected)


def test_missing_digits_are_named_with_their_home_page(tmp_path):
    digits(tmp_path)
    (tmp_path / "svhn" / "test").rename(tmp_path / "svhn" / "valid")
    with pytest.raises(FileNotFoundError, match=r"lacks svhn/test\. .*") as error:
        load_digits_benchmark(tmp_path)
    assert "http://ufldl.stanford.edu/housenumbers/" in str(error.value)
    assert "MNIST" not in str(error.value)


def test_svhn_must_not_call_zero_ten(tmp_path):
    digits(tmp_path)
    (tmp_path / "svhn" / "train" / "0").rename(tmp_path / "svhn" / "train" / "10")
    with pytest.raises(ValueError, match="svhn/train must hold the folders 0 to 9"):
        load_digits_benchmark(tmp_path)


def test_office_home_is_split_per_domain_and_class(tmp_path):
    images = load_office_home(office_home(tmp_path))
    assert images.client_names == OFFICE
    assert len(images.paths) == 4 * 65 * 10
    for domain in OFFICE:
        rows = images.client_ids == domain
        assert (images.split[rows] == "test").sum() == 0.3 * 650
        _, counts = np.unique(images.target[rows & (images.split == "test")], True)
        assert len(counts) == 65


def test_office_home_lists_the_images_of_the_folder(tmp_path):
    office_home(tmp_path)
    split, plain = load_office_home(tmp_path), load_image_folder(tmp_path)
    for key in ("paths", "target", "client_ids", "target_names"):
        np.testing.assert_array_equal(split[key], plain[key])


def test_split_of_office_home_depends_on_the_seed_only(tmp_path):
    office_home(tmp_path)
    first, again, other = (
        load_office_home(tmp_path, random_state=seed).split for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_domains_of_office_home_have_different_splits(tmp_path):
    images = load_office_home(office_home(tmp_path))
    art, clipart = (images.split[images.client_ids == d] for d in OFFICE[:2])
    assert (art != clipart).any()


def test_spelling_of_folders_of_office_home_does_not_matter(tmp_path):
    office_home(tmp_path, ["art", "clipart", "product", "real_world"])
    assert load_office_home(tmp_path).client_names == OFFICE


def test_missing_domains_of_office_home_are_named(tmp_path):
    office_home(tmp_path, ["Art", "Product"])
    with pytest.raises(FileNotFoundError, match="folders Clipart, Real World. .*https"):
        load_office_home(tmp_path)


def test_part_of_office_home_is_refused(tmp_path):
    office_home(tmp_path, n_classes=64)
    with pytest.raises(ValueError, match="Art has 64 classes where Office-Home has 65"):
        load_office_home(tmp_path)


def test_domainnet_follows_its_lists(tmp_path):
    images = load_domainnet(domainnet(tmp_path))
    assert images.client_names == DOMAINS
    assert images.target_names.tolist() == ["aircraft_carrier", "zebra"]
    assert len(images.paths) == 6 * 6
    assert (images.split == "test").sum() == 6 * 2
    assert not any("in_no_list" in path for path in images.paths)
    assert images.paths[0] == str(tmp_path / "clipart/zebra/clipart_0.jpg")
    assert images.target[0] == "zebra"


def test_missing_lists_and_domains_of_domainnet_are_named(tmp_path):
    domainnet(tmp_path)
    (tmp_path / "real_test.txt").unlink()
    (tmp_path / "sketch").rename(tmp_path / "sketches")
    message = r"lacks real_test.txt, the folder sketch\. .*https://ai.bu.edu"
    with pytest.raises(FileNotFoundError, match=message):
        load_domainnet(tmp_path)


def test_images_that_are_listed_but_missing_are_named(tmp_path):
    domainnet(tmp_path)
    (tmp_path / "real" / "zebra" / "real_1.jpg").unlink()
    message = "1 of 36 images in the lists .*real/zebra/real_1.jpg. Unpack"
    with pytest.raises(FileNotFoundError, match=message):
        load_domainnet(tmp_path)


@pytest.mark.parametrize(
    "line", ["clipart/zebra/1.jpg", "real/zebra/1.jpg 3", "zebra/1.jpg 3", ""]
)
def test_damaged_list_of_domainnet_is_refused_with_its_line(tmp_path, line):
    domainnet(tmp_path)
    file = tmp_path / "clipart_test.txt"
    file.write_text(file.read_text() + f"{line}\n")
    with pytest.raises(ValueError, match="clipart_test.txt, line 3 is .* Get the list"):
        load_domainnet(tmp_path)
