"""The examples of the pages about Spark, one after another in one JVM: to start one takes longer than most of them.

All have the same folder and the same URL, for that is what the JVM and the processes that it starts know; the folder is
emptied and the database made anew for each.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.docs.conftest import PAGES, ROOT, run_page, uses_spark
from tests.jvm import started_jvm
from tests.servers import created_database, url_of_database

SPARK_PAGES = [page for page in PAGES if uses_spark(page) and page.name != "README.md"]
DATABASE = "spark_pages"
# The JVM has room for one session at a time. Some pages end theirs themselves.
END_SESSION = (
    "; from pyspark.sql import SparkSession; [each.stop() for each in [SparkSession.getActiveSession()] if each]"
)


@dataclass(frozen=True)
class Surroundings:
    """Where the programs run, and what is in their environment."""

    folder: Path
    environment: Mapping[str, str]


@pytest.fixture(scope="module")
def surroundings(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surroundings]:
    folder = tmp_path_factory.mktemp("pages")
    environment = {"PENSTOCK_URL": url_of_database(server_url, DATABASE)}
    with started_jvm(folder, environment) as gateway:
        yield Surroundings(folder, {**environment, **gateway})


@pytest.mark.parametrize("page", SPARK_PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_examples_of_a_page_run_and_print_what_it_says(
    page: Path, surroundings: Surroundings, server_url: str, template_database: str
) -> None:
    for left in surroundings.folder.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    with created_database(server_url, template_database, name=DATABASE):
        run_page(page, surroundings.folder, surroundings.environment, END_SESSION)
