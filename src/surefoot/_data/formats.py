"""What `load` reads, as errors and help texts name it."""

TABLES = ("csv", "tsv", "parquet")
"""Suffixes of tables, whose columns have names, categories and missing values."""
PATHS = (
    "table.csv, table.tsv, table.parquet, file.npz, file.npz:NAME, X.npy, X.npy,Y.npy, images.gz,labels.gz (IDX), matrix.mtx, "
    "or a folder of images"
)
