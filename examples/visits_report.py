"""VISITS in a notebook's way, with SQLAlchemy and pandas: `python examples/visits_report.py`."""

from __future__ import annotations

import os

import pandas as pd
from sqlalchemy import MetaData, Table, create_engine, select

first, *others = os.environ.get("STANDPIPE_NODES", "localhost:8088").split(",")
engine = create_engine(f"standpipe://{first}?nodes={','.join(others)}")

# one key: a lookup, whose parameter is bound, not spliced
print(pd.read_sql("SELECT * FROM VISITS WHERE USER_ID = ?", engine, params=("ada",)))

# a condition: a scan of the table, at one of its replicas
visits = Table("VISITS", MetaData(), autoload_with=engine)
frequent = pd.read_sql(select(visits).where(visits.c.N >= 10), engine)
print(f"{len(frequent)} users with 10 visits or more")

# the whole table, and pandas from there on
every = pd.read_sql_table("VISITS", engine, index_col="USER_ID")
print(every.groupby("LAST")["N"].agg(["count", "sum"]).sort_index())
