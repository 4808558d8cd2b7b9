"""The benchmark of the report runs, and measures what it says."""

from benchmarks.report.__main__ import main, measure


def test_it_prints_a_table(capsys):
    assert main(["--samples", "3000", "--repeats", "1"]) == 0
    assert "report of two runs side by side | 3,000" in " ".join(capsys.readouterr().out.split())


def test_both_rows_stand_beside_reading_the_store(tmp_path):
    rows = measure(tmp_path, 1000, 2)
    assert [len(row.times) for row in rows] == [2, 2]
    assert all(row.peers["reading the store"] for row in rows)
    assert (tmp_path / "report.html").exists()
