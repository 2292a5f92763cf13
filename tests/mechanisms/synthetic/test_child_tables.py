"""Rows of a child for each row of released parents: exactly conditional, independent, paid for as their margins are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import numpy as np
import pytest

import dpduck
from dpduck.database.functions import OWNER, database_of
from dpduck.kernel.noise.entropy import operating_system_entropy, words64
from dpduck.language.select.impossible_cells import ImpossibleCells
from dpduck.mechanisms.registry import mechanism_of
from dpduck.mechanisms.synthetic.children import child_codes, is_childless
from dpduck.mechanisms.synthetic.distribution import Distribution, uniform
from dpduck.values.errors import Refusal
from tests.support.clinics import Clinic

ENTROPY = operating_system_entropy()
PARENTS = """CREATE PRIVATE TABLE made_customers OPTIONS (epsilon = 2, delta = 1e-6, key = id) AS
    SELECT region, age, n FROM customers
    JOIN (SELECT id AS whose, count(number) AS n FROM customers LEFT JOIN orders ON id = customer GROUP BY id)
    ON id = whose WORKLOAD MARGINALS (2)"""
SELECTED = """SELECT region, age, item, paid FROM customers JOIN orders ON id = customer
    WHERE NOT (age < 30 AND paid >= 30)"""
EACH = "FOR EACH ROW OF made_customers (customer = id) TIMES n"
CHILDREN = f"""CREATE PRIVATE TABLE made_orders OPTIONS (epsilon = 2, delta = 1e-6) AS {SELECTED}
    {EACH} WORKLOAD MARGINALS (2)"""


def fill(clinic: Clinic) -> None:
    """4,000 customers, some without an age, with none to four orders, more and dearer ones in the north. Also orders of
    nobody, and customers with more orders than MAX ROWS."""
    clinic.con.execute(
        """CREATE TABLE customers AS SELECT i AS id, ['north', 'south', 'west'][1 + i % 3] AS region,
               CASE WHEN i % 50 = 1 THEN NULL ELSE 20 + hash(i) % 40 END::INTEGER AS age FROM range(4000) AS r(i);
           ALTER TABLE customers ADD PRIMARY KEY (id);
           CREATE TABLE orders AS SELECT 10 * i + j AS number, CASE WHEN i = 17 THEN NULL ELSE i END AS customer,
               CASE WHEN i % 3 = 0 THEN 'pen' WHEN hash(i, j) % 3 = 0 THEN 'ink' ELSE 'pad' END AS item,
               (CASE WHEN i % 3 = 0 THEN 20 ELSE 0 END + hash(j, i) % 20)::DECIMAL(6, 2) AS paid
               FROM range(4000) AS r(i), range(9) AS s(j)
               WHERE j < CASE WHEN i % 500 = 0 THEN 9 WHEN i % 3 = 0 THEN 3 + hash(i, 1) % 2 ELSE hash(i, 2) % 3 END"""
    )
    clinic.dp(
        "CREATE PRIVACY POLICY ON customers (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 60, delta = 1e-4), "
        "DOMAIN region IN ('north', 'south', 'west'), DOMAIN age RANGE 20 TO 60 STEP 10 WITH NULL, EXPECT ROWS 4000)"
    )
    clinic.dp(
        "CREATE PRIVACY POLICY ON orders (PRIVACY UNIT customer REFERENCES customers.id MAX ROWS 4, "
        "DOMAIN item IN ('pen', 'ink', 'pad'), DOMAIN paid RANGE 0 TO 40 STEP 10, EXPECT ROWS 7000)"
    )


@pytest.fixture(scope="module")
def shop() -> Iterator[Clinic]:
    """One shop with made-up customers and orders."""
    with dpduck.connect() as connection:
        made = Clinic(connection)
        fill(made)
        made.dp(PARENTS)
        made.dp(CHILDREN)
        yield made


def shares(clinic: Clinic, sql: str) -> dict[tuple[object, ...], float]:
    found = clinic.rows(sql)
    return {row[:-1]: row[-1] / sum(one[-1] for one in found) for row in found}


def distance(one: dict[tuple[object, ...], float], other: dict[tuple[object, ...], float]) -> float:
    return sum(abs(one.get(cell, 0.0) - other.get(cell, 0.0)) for cell in {*one, *other}) / 2


def test_children_name_parents_and_are_as_many(shop: Clinic) -> None:
    """Every child has the key of a made-up parent, every parent as many as its number says, at most MAX ROWS. The
    parents' columns stay theirs. The ledger has two entries, of the shared unit. The children's entry is that of the
    same statement about one table, which is then free."""
    assert [row[0] for row in shop.rows("DESCRIBE private.made_customers")] == ["id", "region", "age", "n"]
    assert [row[:2] for row in shop.rows("DESCRIBE private.made_orders")] == [
        ("customer", "BIGINT"), ("item", "VARCHAR"), ("paid", "DECIMAL(6,2)")
    ]  # fmt: skip
    wrong = shop.rows(
        "SELECT id FROM private.made_customers LEFT JOIN private.made_orders ON customer = id "
        "GROUP BY id, n HAVING count(customer) <> n OR n NOT BETWEEN 0 AND 4"
    )
    assert wrong == []
    assert shop.value("SELECT count(*) FROM private.made_orders ANTI JOIN private.made_customers ON customer = id") == 0
    paid = "SELECT count(*) FROM dp_ledger() WHERE trim(statement) IN (trim(?), trim(?)) AND rho > 0"
    assert shop.con.execute(paid, [PARENTS, CHILDREN]).fetchall() == [(2,)]
    before = shop.charges()
    shop.dp(CHILDREN)
    shop.dp(f"CREATE PRIVATE TABLE flat OPTIONS (epsilon = 2, delta = 1e-6) AS {SELECTED} WORKLOAD MARGINALS (2)")
    assert shop.charges() == before
    assert "made_orders" in str(shop.rows("SELECT name FROM dp_releases()"))
    assert len(shop.rows("FROM dp_certificate('made_orders')")) > 5
    with pytest.raises(duckdb.Error, match="is of several tables"):
        shop.rows("FROM dp_compare('made_orders')")
    explained = "SELECT strategy, chosen, rho, note FROM dp_explain(?)"
    told, flat = (shop.con.execute(explained, [one]).fetchall() for one in (CHILDREN, CHILDREN.replace(EACH, "")))
    assert told == flat and "memory.main.customers.id, at most 4 rows" in told[0][3]


def test_margins_that_noise_drowns_are_said_before_the_charge(shop: Clinic) -> None:
    """At a small price dp_explain and a step before the charge say that margins across the reference may be no nearer
    than separately drawn tables, and what helps. At a larger price they do not. The words depend on sizes, MAX ROWS,
    EXPECT ROWS and the price, never on rows."""
    said: list[str] = []
    database = database_of(shop.con)
    assert database is not None
    foresight = replace(database.foresight, steps=said.append)
    for price, drowned in (("2", False), ("0.02", True)):
        text, word = CHILDREN.replace("epsilon = 2", f"epsilon = {price}"), "columns that are drawn apart are often"
        note = str(shop.con.execute("SELECT note FROM dp_explain(?) WHERE chosen", [text]).fetchall()[0][0])
        assert (word in note) == drowned and ("a smaller MAX ROWS" in note) == drowned
        question = database.question_of(text, OWNER)[0]
        mechanism = mechanism_of(question)
        foresight.say(mechanism, mechanism.plan(question))
        assert [word in step for step in said] == [True] * drowned
        assert all(step in note for step in said)


def test_margins_across_the_reference_are_near(shop: Clinic) -> None:
    """Number of children by region, and items and prices by columns of the parent, are several times nearer to the data
    than independent draws would be. No pair of a parent and its child violates WHERE. The noise of a share has a
    deviation of 0.0035, a half of the sum over 15 cells is 0.02 in the mean and deviates by 0.004: the bar of 0.08 is
    15 of these, an alarm below 1e-40."""
    region = "SELECT region, {}, count(*) FROM {} GROUP BY ALL"
    numbers = "(SELECT region, count(number) AS n FROM customers LEFT JOIN orders ON id = customer GROUP BY id, region)"
    exact = shares(shop, region.format("least(n, 4)", numbers))
    made = shares(shop, region.format("n", "private.made_customers"))
    assert distance(exact, made) < 0.08
    joined = "customers JOIN orders ON id = customer WHERE number % 10 < 4 AND NOT (age < 30 AND paid >= 30)"
    ours = "private.made_customers JOIN private.made_orders ON customer = id"
    for parent, child in (("region", "item"), ("region", "paid"), ("age", "paid")):
        sql = f"SELECT {parent}, {child}, count(*) FROM {{}} GROUP BY ALL"
        binned = sql.replace("paid", "floor(paid / 10) * 10").replace("age,", "age // 10 * 10,")
        exact, made = shares(shop, binned.format(joined)), shares(shop, sql.format(ours))
        single = [shares(shop, f"SELECT {one}, count(*) FROM ({ours}) GROUP BY ALL") for one in (parent, child)]
        apart = {(*a, *b): p * q for a, p in single[0].items() for b, q in single[1].items()}
        near = distance(exact, made)
        assert near < 0.08, (parent, child, near)
        assert parent == "age" or near < distance(exact, apart) / 4, (parent, child, near)
    assert shop.value(f"SELECT count(*) FROM {ours} WHERE age < 30 AND paid >= 30") == 0


def test_refusals_are_of_released_rows_and_cost_nothing(shop: Clinic) -> None:
    """A wrong reference to the parents is refused before a charge, one line each."""
    shop.dp(PARENTS.replace("made_customers", "many").replace("key = id", "key = id, rows = 9000"))
    dear = CHILDREN.replace("epsilon = 2", "epsilon = 3").replace("made_orders", "more")
    part = EACH
    changed = [
        "FOR EACH ROW OF nothing_there (customer = id) TIMES n", part.replace("= id", "= region"),
        part.replace("= id", "= n"), part.replace("TIMES n", "TIMES region"), part.replace("(customer", "(item"),
        part.replace("= id", "= nowhere"), part.replace(" TIMES n", ""), part.replace("TIMES n", "TIMES n n"),
        part.replace("TIMES n", "TIMES id").replace("made_customers", "many"),
    ]  # fmt: skip
    statements = [dear.replace(part, one) for one in changed]
    statements += [
        dear.replace("1e-6)", "1e-6, rows = 5)"), dear.replace("1e-6)", "1e-6, key = Item)"),
        dear.replace("1e-6)", "1e-6, key = customer)"), dear.replace("SELECT region, age,", "SELECT"),
        dear.replace("(customer", '(""'), dear.replace("1e-6)", '1e-6, key = "")'),
    ]  # fmt: skip
    messages = shop.all_refused(statements)
    for message, said in zip(messages, (
        "there is no private table", "no column of whole numbers", "not different in every row",
        "no column of whole numbers", "a column 'item' already", "there is no column 'nowhere'", "is not expected here",
        "is not expected here", "is below 0, or too large", "rows has no effect here", "a column 'Item' already",
        "a column 'customer' already", "no column of the SELECT is one of the parents",
        "a column of no name", "a column of no name",
    ), strict=True):  # fmt: skip
        assert said in message and "accepted:" in message, message


def test_other_parents_are_another_table(shop: Clinic) -> None:
    """The same statement is the same table until its parents are others: then it is refused, or replaces; free."""
    charged = shop.charges()
    shop.dp(CHILDREN.replace("made_orders", "kept").replace("customer =", "whose ="))
    first = shop.rows("FROM private.kept ORDER BY ALL")
    shop.dp(CHILDREN.replace("made_orders", "kept").replace("customer =", "whose ="))
    assert shop.rows("FROM private.kept ORDER BY ALL") == first
    shop.dp(PARENTS.replace("made_customers", "others").replace("key = id", "key = id, rows = 500"))
    moved = CHILDREN.replace("made_orders", "of_others").replace("made_customers", "others")
    shop.dp(moved)
    shop.dp(PARENTS.replace("TABLE made_customers", "TABLE others").replace("CREATE", "CREATE OR REPLACE")
            .replace("key = id", "key = id, rows = 400"))  # fmt: skip
    assert "exists" in shop.refused(moved)
    shop.dp(moved.replace("CREATE", "CREATE OR REPLACE"))
    assert shop.value("SELECT max(customer) <= 400 FROM private.of_others") is True
    shop.con.execute("DROP TABLE private.others")
    assert "there is no private table 'others'" in shop.refused(moved.replace("epsilon = 2", "epsilon = 3"))
    assert shop.charges() == charged


def test_children_stand_when_their_parents_are_dropped(shop: Clinic) -> None:
    """The statement that made children finds them there, even without their parents. Another statement, and one of
    another epoch, needs the parents."""
    shop.dp(PARENTS.replace("made_customers", "leaving"))
    text = CHILDREN.replace("made_orders", "left_behind").replace("made_customers", "leaving")
    shop.dp(text)
    first, charged = shop.rows("FROM private.left_behind ORDER BY ALL"), shop.charges()
    shop.dp("DROP PRIVATE TABLE leaving")
    shop.dp(text)
    assert shop.rows("FROM private.left_behind ORDER BY ALL") == first
    assert "there is no private table 'leaving'" in shop.refused(text.replace("= id", "= n"))
    shop.con.execute("DROP TABLE private.left_behind")
    assert "there is no private table 'leaving'" in shop.refused(text)
    assert shop.charges() == charged


def test_more_children_than_have_room_are_refused_before_the_charge(shop: Clinic) -> None:
    """How many children there are is known from their parents: no room for them costs nothing. The option rows is
    refused as early."""
    database, charged = database_of(shop.con), shop.charges()
    assert database is not None
    small, new = replace(OWNER, room=lambda rows: 3), CHILDREN.replace("made_orders", "no_room")
    for text in (new.replace("epsilon = 2", "epsilon = 4"),
                 new.replace("epsilon = 2", "epsilon = 4, rows = 5").replace(EACH, "")):  # fmt: skip
        with pytest.raises(Refusal, match="rows have no room in the store"):
            database.run(text, small)
    assert shop.charges() == charged


def test_parents_whom_where_rules_out_have_no_children(shop: Clinic) -> None:
    """WHERE of a parent's column leaves parents without children, and so do conditions that leave a child no value of
    its own. All others have as many as they should."""
    rule = "region <> 'west' AND NOT (age < 30 AND item = 'pen') AND NOT (age < 30 AND item <> 'pen')"
    shop.dp(CHILDREN.replace("made_orders", "ruled").replace("NOT (age < 30 AND paid >= 30)", rule))
    out = "region = 'west' OR (age < 30) IS NOT FALSE"  # of an unknown age WHERE keeps none either
    numbers = """SELECT count(*) FROM (SELECT any_value(n) AS n, any_value({}) AS gone, count(customer) AS found
        FROM private.made_customers LEFT JOIN private.ruled ON customer = id GROUP BY id) WHERE {}"""
    assert shop.value(numbers.format(out, "gone AND n > 0")) > 500
    assert shop.value(numbers.format(out, "found <> CASE WHEN gone THEN 0 ELSE n END")) == 0


def test_parents_beyond_the_domain_are_refused() -> None:
    """Parents that were made before a DOMAIN was narrowed have values below or above all its bins: refused before the
    charge. WITH EDGES they are those of the first and the last bin."""
    with dpduck.connect() as connection:
        clinic = Clinic(connection)
        connection.execute(
            """CREATE TABLE people AS SELECT i AS id, 20 + i % 40 AS age FROM range(80) AS r(i);
               ALTER TABLE people ADD PRIMARY KEY (id);
               CREATE TABLE buys AS SELECT i % 80 AS who, ['pen', 'ink'][1 + i % 2] AS item FROM range(160) AS r(i)"""
        )
        clinic.dp(
            "CREATE PRIVACY POLICY ON people (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 900, delta = 1e-3), "
            "DOMAIN age RANGE 20 TO 60 STEP 10, EXPECT ROWS 80)"
        )
        clinic.dp(
            "CREATE PRIVACY POLICY ON buys (PRIVACY UNIT who REFERENCES people.id MAX ROWS 2, "
            "DOMAIN item IN ('pen', 'ink'))"
        )
        clinic.dp(
            "CREATE PRIVATE TABLE made OPTIONS (epsilon = 20, delta = 1e-6, key = id) AS SELECT age FROM people "
            "WORKLOAD MARGINALS (1)"
        )
        text = """CREATE PRIVATE TABLE bought OPTIONS (epsilon = 20, delta = 1e-6) AS SELECT age, item FROM people
            JOIN buys ON id = who FOR EACH ROW OF made (who = id) TIMES id WORKLOAD MARGINALS (2)"""
        for bins in ("20 TO 40 STEP 10", "40 TO 60 STEP 10"):
            clinic.dp(f"ALTER PRIVACY POLICY ON people SET DOMAIN age RANGE {bins}")
            assert "'age' has values outside the domain here" in clinic.refused(text)
        clinic.dp("ALTER PRIVACY POLICY ON people SET DOMAIN age RANGE 30 TO 50 STEP 10 WITH EDGES")
        clinic.dp(text)
        assert clinic.value("SELECT count(DISTINCT age) FROM private.made ANTI JOIN private.bought ON who = id") == 0


def test_values_inside_bins_find_their_bin(shop: Clinic) -> None:
    """Parents with values inside bins have children as those with edges: none is outside, the rule is kept, and the
    children's own values lie inside bins. A key of their own numbers them."""
    shop.dp(PARENTS.replace("made_customers", "inner").replace("key = id", "key = id, inside = TRUE"))
    inside = "1e-6, inside = TRUE, key = number)"
    shop.dp(CHILDREN.replace("made_orders", "within").replace("made_customers", "inner").replace("1e-6)", inside))
    rows = "private.inner JOIN private.within ON customer = id"
    assert shop.value("SELECT count(DISTINCT age) > 30 AND max(age) < 60 FROM private.inner") is True
    assert shop.value("SELECT count(DISTINCT paid) > 500 AND max(paid) < 40 FROM private.within") is True
    numbers = shop.rows("SELECT count(*), min(number), max(number), count(DISTINCT number) FROM private.within")[0]
    assert numbers[1] == 1 and numbers[0] == numbers[2] == numbers[3]
    dear, cheap = (shop.value(f"SELECT avg(paid) FROM {rows} WHERE region = '{one}'") for one in ("north", "south"))
    assert dear > cheap + 10


def tree_distribution(random: np.random.Generator) -> Distribution:
    """Five attributes over three cliques, and one that depends on nothing."""
    sizes, sets = (3, 2, 4, 3, 2, 2), [(0, 1, 2), (2, 3), (3, 4)]
    zeros = {one: np.log(random.gamma(0.7, size=[sizes[place] for place in one])) for one in sets}
    return uniform(sizes, dense=False, zeros=zeros)


@pytest.mark.parametrize("given", [(0, 4), (1, 3), (2,), (5,), (0, 1, 2, 3, 4), ()])
def test_children_are_drawn_given_their_parents(given: tuple[int, ...]) -> None:
    """Given any known values, in one clique or across cliques, shares of the rest follow the conditional distribution
    of one dense table. 200,000 rows: a share has a deviation of 0.0011 at most, the bar is 8 of them for each of at
    most 576 cells, an alarm below 1e-12."""
    random = np.random.default_rng(8)
    distribution = tree_distribution(random)
    joined, place = distribution.join(range(6))
    table = joined.components[place].table
    parents = np.unravel_index(random.integers(0, table.size, 200), table.shape)
    known = {one: parents[one] for one in given}
    codes = np.array(child_codes(distribution, np.full(200, 1000), known, lambda count: words64(ENTROPY, count)))
    assert all((codes[one] == np.repeat(parents[one], 1000)).all() for one in given)
    shape = [table.shape[one] for one in given]
    inside = np.bincount(np.ravel_multi_index([parents[one] for one in given], shape) if given else np.zeros(200, int),
                         minlength=int(np.prod(shape))).reshape(shape)  # fmt: skip
    margin = table.sum(axis=tuple(axis for axis in range(6) if axis not in given), keepdims=True)
    exact = table / margin * inside.reshape(margin.shape) / 200
    drawn = np.bincount(np.ravel_multi_index(codes, table.shape), minlength=table.size).reshape(table.shape) / 200_000
    assert np.abs(drawn - exact).max() < 8 * 0.0011


def test_children_of_one_parent_are_independent() -> None:
    """Two children of one parent share a value as often as two independent draws do, though rows are spread evenly
    over the values: 20,000 pairs of each kind of parent, a deviation of 0.0036, the bar is 8 of them. Spread over all
    rows, the shares themselves are nearer than independent draws could be."""
    random = np.random.default_rng(9)
    distribution = tree_distribution(random)
    kinds = np.repeat(np.arange(3), 20_000)
    codes = child_codes(distribution, np.full(60_000, 2), {0: kinds}, lambda count: words64(ENTROPY, count))
    margin = distribution.marginals([(0, 3)])[0, 3]
    for kind in range(3):
        law = margin[kind] / margin[kind].sum()
        pairs = codes[3].reshape(-1, 2)[kinds == kind]
        assert abs((pairs[:, 0] == pairs[:, 1]).mean() - (law**2).sum()) < 8 * 0.0036
        shares = np.bincount(pairs[:, 0], minlength=3) / len(pairs)
        assert np.abs(shares - law).max() < 0.01
        twice = np.bincount(codes[2].reshape(-1, 2)[kinds == kind][:, 1], minlength=4) / len(pairs)
        law = distribution.marginals([(0, 2)])[0, 2][kind]
        assert np.abs(twice - law / law.sum()).max() < 0.002


def test_parents_that_cannot_be_have_children_all_the_same() -> None:
    """A parent with an impossible combination of values has children drawn as if nothing were known, but none that
    WHERE excludes for this parent."""
    table = np.array([[0.5, 0.0], [0.25, 0.25]])
    distribution = uniform((2, 2, 3), dense=True)
    full = (table[:, :, None] * np.array([0.2, 0.3, 0.5])).astype(np.float64)
    distribution = distribution.with_table(0, full)
    known = {0: np.zeros(9000, np.int64), 1: np.ones(9000, np.int64)}
    codes = child_codes(distribution, np.ones(9000, np.int64), known, lambda count: words64(ENTROPY, count))
    assert set(codes[0]) == {0} and set(codes[1]) == {1}
    assert np.abs(np.bincount(codes[2], minlength=3) / 9000 - [0.2, 0.3, 0.5]).max() < 0.06
    zeros = (ImpossibleCells((0, 2), (2,)),)
    ruled = child_codes(distribution, np.ones(9000, np.int64), known, lambda count: words64(ENTROPY, count), zeros)
    assert set(ruled[0]) == {0} and set(ruled[1]) == {1} and set(ruled[2]) == {0, 1}
    assert is_childless((2, 2, 3), known, zeros).sum() == 0
    assert is_childless((2, 2, 3), known, (*zeros, ImpossibleCells((1, 2), (3, 4)))).all()
    assert all(len(one) == 0 for one in child_codes(distribution, np.zeros(3, np.int64), {0: np.zeros(3, np.int64)},
                                                    lambda count: words64(ENTROPY, count)))  # fmt: skip
