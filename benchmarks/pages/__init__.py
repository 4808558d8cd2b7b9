"""What recorded runs come to: tables, pictures and pages.

python -m benchmarks.pages                 the tables of docs/ that stand on runs of the study, and study.md
python -m benchmarks.pages.pictures        docs/pictures/accuracy-*.png, curves-*, samples-*, suspects-*, and saving.png
python -m benchmarks.pages.wrong_labels    prints the tables of wrong labels found in docs/evidence/suspects.md
python -m benchmarks.pages.overlap         prints the table of overlap there; docs/pictures/overlap-*.png
"""
