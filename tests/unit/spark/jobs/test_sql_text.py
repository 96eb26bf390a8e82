from twisted.trial import unittest

from rocketd.spark.columns import DEFAULT_COLUMNS
from rocketd.spark.errors import SparkError
from rocketd.spark.jobs.sql.job import _columns
from rocketd.spark.jobs.sql.text import Statement, names, statements


class StatementTests(unittest.TestCase):
    def test_semicolons_in_strings_names_and_comments_do_not_split(self):
        text = "select ';' as a; -- one; two\nselect \"x;y\", `odd;name` /* ; */ from t;\n;"
        self.assertEqual(
            list(statements(text)),
            [
                Statement("select ';' as a", "console", "", 1),
                Statement('select "x;y", `odd;name`   from t', "console", "", 2),
            ],
        )

    def test_insert_statements_name_their_sinks(self):
        text = "INSERT INTO topic.`Paid`\nselect 1; insert into Archive . `/lake/a``b` with x as (select 1) select * from x"
        self.assertEqual(
            list(statements(text)),
            [
                Statement("select 1", "topic", "Paid", 1),
                Statement("with x as (select 1) select * from x", "archive", "/lake/a`b", 2),
            ],
        )

    def test_statements_without_rows(self):
        (only,) = statements("create temporary view v as select 1")
        self.assertEqual(only.sink, "")

    def test_another_sink_is_refused_with_its_line(self):
        with self.assertRaisesRegex(SparkError, "^line 2: rows go INSERT INTO topic"):
            list(statements("select 1;\ninsert into parquet.`/x` select 1"))

    def test_escaped_quotes_do_not_end_a_string(self):
        (only,) = statements(r"select 'it\'s; fine'")
        self.assertEqual(only.query, r"select 'it\'s; fine'")


class NameTests(unittest.TestCase):
    def test_words_and_quoted_names_but_no_strings_or_comments(self):
        text = "select Orders.body from `%RETRY%g` join Paid -- Hidden\nwhere x = 'Secret' and y = \"Said\""
        self.assertEqual(
            names(text), {"select", "orders", "body", "from", "%retry%g", "join", "paid", "where", "x", "and", "y"}
        )


class ColumnTests(unittest.TestCase):
    def test_columns_are_the_named_ones_or_all_for_a_star(self):
        self.assertEqual(_columns("SELECT tags, count(*) FROM T GROUP BY tags"), ("tags",))
        self.assertEqual(_columns("SELECT COUNT ( * ) FROM T"), ("queue_offset",))
        for text in (
            "SELECT * FROM T",
            "SELECT t.* FROM T t",
            "SELECT to_json(struct(*)) AS body FROM T",
            "FROM T |> LIMIT 3",
        ):
            self.assertEqual(_columns(text), DEFAULT_COLUMNS, text)
