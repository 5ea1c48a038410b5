from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from webhook.folder import Watch, files, read


def write(path: Path, text: str = "x") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def settled(watch: Watch) -> tuple[list[str], list[str]]:
    watch.look()
    changes = watch.look()
    return changes.changed, changes.gone


def test_a_folder_gives_its_yaml_and_json_sorted_and_no_hidden_files(tmp_path: Path) -> None:
    b, a = write(tmp_path / "b.yaml"), write(tmp_path / "a" / "z.json")
    c = write(tmp_path / "c.yml")
    write(tmp_path / "notes.txt")
    write(tmp_path / ".hidden.yaml")
    write(tmp_path / "..2026" / "x.yaml")
    assert list(files([str(tmp_path)])) == [a, b, c]


def test_a_named_file_counts_whatever_its_name_and_paths_keep_their_order(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one"), write(tmp_path / "two.yaml")
    assert list(files([two, "-", one])) == [two, "-", one]


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(files([str(tmp_path / "none")]))


def test_a_link_back_to_its_own_folder_ends(tmp_path: Path) -> None:
    one = write(tmp_path / "one.yaml")
    (tmp_path / "again").symlink_to(tmp_path)
    assert list(files([str(tmp_path)])) == [one]


def test_new_changed_and_removed_files_are_told_once_they_stay_the_same(tmp_path: Path) -> None:
    watch = Watch([str(tmp_path)])
    path = write(tmp_path / "a.yaml")
    assert watch.look().changed == []
    assert watch.look().changed == [path]
    assert settled(watch) == ([], [])
    write(tmp_path / "a.yaml", "longer")
    assert settled(watch) == ([path], [])
    os.unlink(path)
    assert settled(watch) == ([], [path])
    assert settled(watch) == ([], [])


def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    watch = Watch([str(tmp_path)])
    for size in range(1, 3):
        write(tmp_path / "a.yaml", "x" * size)
        assert watch.look().changed == []
    assert len(watch.look().changed) == 1


def test_a_marked_file_is_known(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml")
    watch = Watch([path])
    watch.mark(path)
    assert settled(watch) == ([], [])


def test_the_swap_of_a_mounted_config_map_is_seen(tmp_path: Path) -> None:
    write(tmp_path / "..v1" / "a.yaml")
    write(tmp_path / "..v2" / "a.yaml")
    (tmp_path / "..data").symlink_to("..v1")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    watch = Watch([str(tmp_path)])
    watch.mark(str(tmp_path / "a.yaml"))
    (tmp_path / "..new").symlink_to("..v2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert settled(watch) == ([str(tmp_path / "a.yaml")], [])


def test_a_folder_that_is_gone_takes_its_files_along(tmp_path: Path) -> None:
    path = write(tmp_path / "sub" / "a.yaml")
    watch = Watch([str(tmp_path / "sub")])
    watch.mark(path)
    os.unlink(path)
    (tmp_path / "sub").rmdir()
    assert settled(watch) == ([], [path])


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.mkdir()])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "x.yaml"
    make(path)
    with pytest.raises(OSError, match=r"x\.yaml"):
        read(str(path))


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("nowhere")])
def test_what_is_no_file_counts_when_it_comes_and_when_it_goes(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "x.yaml"
    watch = Watch([str(tmp_path)])
    make(path)
    assert settled(watch) == ([str(path)], [])
    assert settled(watch) == ([], [])
    path.unlink()
    assert settled(watch) == ([], [str(path)])


def test_a_file_that_never_rests_comes_in_all_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", "")
    watch = Watch([path])
    watch.mark(path)
    looks = []
    for size in range(1, 7):
        write(tmp_path / "a.yaml", "x" * size)
        looks.append(watch.look().changed)
    assert looks == [[], [], [path]] * 2


def test_a_pipe_that_was_named_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("x",))
    writer.start()
    assert read(str(path), named=True) == b"x"
    writer.join()
