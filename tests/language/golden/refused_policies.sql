-- title: a policy on a table that does not exist
CREATE PRIVACY POLICY ON nowhere (PRIVACY UNIT ROW, BUDGET (epsilon = 1))
-- refused: line 1, column 26: there is no table 'nowhere'; accepted: an existing table

-- title: a policy on a view
CREATE PRIVACY POLICY ON visit_view (PRIVACY UNIT ROW, BUDGET (epsilon = 1))
-- refused: line 1, column 26: 'visit_view' is a view; accepted: the table that it reads; of a file, CREATE TABLE t AS FROM 'file'

-- title: a policy on a public table
CREATE PRIVACY POLICY ON wards (PRIVACY UNIT ROW, BUDGET (epsilon = 1))
-- refused: line 1, column 26: memory.main.wards is declared public; accepted: UNDECLARE PUBLIC TABLE first

-- title: a policy where there is one
CREATE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1))
-- refused: line 1, column 26: memory.main.visits has a privacy policy; accepted: CREATE OR REPLACE, or ALTER PRIVACY POLICY

-- title: a policy on a table with generated columns
-- before: sql CREATE TABLE made (a INTEGER, b INTEGER AS (1 // a))
CREATE PRIVACY POLICY ON made (PRIVACY UNIT ROW, BUDGET (epsilon = 1))
-- refused: line 1, column 26: memory.main.made is a table with generated columns, or a COLLATION other than NOCASE and NOACCENT: private rows could make it raise, or take hours; accepted: a table of stored columns, without such a COLLATE

-- title: a policy without ON
CREATE PRIVACY POLICY visits (PRIVACY UNIT ROW)
-- refused: line 1, column 23: 'visits' is not expected here; accepted: ON

-- title: a policy without items
CREATE PRIVACY POLICY ON secrets ()
-- refused: line 1, column 35: ')' is not expected here; accepted: PRIVACY UNIT, BUDGET, LIFETIME, DOMAIN, CLAMP, EXPECT ROWS, MAX EPSILON or MIN EPSILON

-- title: an unknown item
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, COLOUR red)
-- refused: line 1, column 53: 'COLOUR' is not expected here; accepted: PRIVACY UNIT, BUDGET, LIFETIME, DOMAIN, CLAMP, EXPECT ROWS, MAX EPSILON or MIN EPSILON

-- title: a comma after the last item
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1),)
-- refused: line 1, column 74: a comma stands before ')'; accepted: no comma after the last item

-- title: no privacy unit
CREATE PRIVACY POLICY ON secrets (BUDGET (epsilon = 1))
-- refused: line 1, column 26: PRIVACY UNIT is missing; accepted: PRIVACY UNIT column MAX ROWS m, or PRIVACY UNIT ROW

-- title: two privacy units
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, PRIVACY UNIT ROW, BUDGET (epsilon = 1))
-- refused: line 1, column 53: PRIVACY UNIT is given twice; accepted: each item once

-- title: a privacy unit that is no column
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT person MAX ROWS 1, BUDGET (epsilon = 1))
-- refused: line 1, column 48: there is no column 'person'; accepted: word, sex

-- title: a privacy unit without MAX ROWS
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT word, BUDGET (epsilon = 1))
-- refused: line 1, column 52: ',' is not expected here; accepted: MAX ROWS and the most rows of one unit that an answer may see

-- title: MAX ROWS 0
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT word MAX ROWS 0, BUDGET (epsilon = 1))
-- refused: line 1, column 62: MAX ROWS is out of range; accepted: a whole number from 1 to 1000000

-- title: MAX ROWS that is no whole number
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT word MAX ROWS 1.5, BUDGET (epsilon = 1))
-- refused: line 1, column 62: MAX ROWS is out of range; accepted: a whole number from 1 to 1000000

-- title: MAX ROWS huge
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT word MAX ROWS 1e30, BUDGET (epsilon = 1))
-- refused: line 1, column 62: MAX ROWS is out of range; accepted: a whole number from 1 to 1000000

-- title: REFERENCES without a column
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT word REFERENCES patients MAX ROWS 1, BUDGET (epsilon = 1))
-- refused: line 1, column 73: a column is named with its table; accepted: table.column

-- title: REFERENCES a table that does not exist
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT word REFERENCES people.id MAX ROWS 1, BUDGET (epsilon = 1))
-- refused: line 1, column 48: there is no table 'people'; accepted: an existing table

-- title: REFERENCES a column that does not exist
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT word REFERENCES patients.name MAX ROWS 1, BUDGET (epsilon = 1))
-- refused: line 1, column 48: there is no column 'name'; accepted: id, sex, ward, age

-- title: no budget
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW)
-- refused: line 1, column 26: BUDGET is missing; accepted: BUDGET (epsilon = ..), or with delta, or (rho = ..)

-- title: an empty budget
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET ())
-- refused: line 1, column 61: ')' is not expected here; accepted: epsilon, delta, delta_keys or rho

-- title: a budget of zero
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 0))
-- refused: line 1, column 71: epsilon is out of range; accepted: a number above 0, at most 1000000

-- title: a negative budget
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = -1))
-- refused: line 1, column 71: epsilon is out of range; accepted: a number above 0, at most 1000000

-- title: an infinite budget
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = inf))
-- refused: line 1, column 71: 'inf' is not expected here; accepted: a number for epsilon

-- title: a budget too large to mean anything
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1e300))
-- refused: line 1, column 71: epsilon is out of range; accepted: a number above 0, at most 1000000

-- title: a budget of an unknown part
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (kappa = 1))
-- refused: line 1, column 67: kappa is unknown or given twice; accepted: epsilon, delta, delta_keys or rho, each once

-- title: a part of a budget twice
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1, epsilon = 2))
-- refused: line 1, column 82: epsilon is unknown or given twice; accepted: epsilon, delta, delta_keys or rho, each once

-- title: a budget of epsilon and rho
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1, rho = 1))
-- refused: line 1, column 60: these parts make no budget; accepted: (epsilon = ..), (epsilon = .., delta = ..) or (rho = ..)

-- title: a budget of delta alone
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (delta = 1e-6))
-- refused: line 1, column 60: these parts make no budget; accepted: (epsilon = ..), (epsilon = .., delta = ..) or (rho = ..)

-- title: a delta that is too large
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1, delta = 0.5))
-- refused: line 1, column 60: delta is out of range; accepted: delta below 0.01 and delta_keys below delta

-- title: delta_keys above delta
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1, delta = 1e-6, delta_keys = 1e-5))
-- refused: line 1, column 60: delta is out of range; accepted: delta below 0.01 and delta_keys below delta

-- title: two budgets
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), BUDGET (epsilon = 2))
-- refused: line 1, column 75: BUDGET is given twice; accepted: each item once

-- title: a domain of a column that does not exist
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN colour IN ('red'))
-- refused: line 1, column 82: there is no column 'colour'; accepted: word, sex

-- title: a domain twice
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex IN ('F'), DOMAIN SEX IN ('M'))
-- refused: line 1, column 103: the domain of SEX is given twice; accepted: one domain for each column

-- title: a domain read from the data
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN word IN (SELECT DISTINCT word FROM secrets))
-- refused: line 1, column 91: a domain is declared, never read from data; accepted: a list of literals, or FROM public_table.column

-- title: a domain from a private table
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN word FROM visits.note)
-- refused: line 1, column 82: 'visits' is not declared public: a domain is never read from protected data; accepted: a table after DECLARE PUBLIC TABLE, or IN (..)

-- title: a domain from the table itself
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN word FROM secrets.word)
-- refused: line 1, column 82: 'secrets' is not declared public: a domain is never read from protected data; accepted: a table after DECLARE PUBLIC TABLE, or IN (..)

-- title: a domain from a view over a private table
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN word FROM visit_view.note)
-- refused: line 1, column 82: 'visit_view' is not declared public: a domain is never read from protected data; accepted: a table after DECLARE PUBLIC TABLE, or IN (..)

-- title: a domain from a table that does not exist
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN word FROM words.word)
-- refused: line 1, column 82: there is no table 'words'; accepted: a table after DECLARE PUBLIC TABLE

-- title: a domain from a column that does not exist
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN word FROM wards.word)
-- refused: line 1, column 82: 'wards' has no column 'word'; accepted: table.column of a public table

-- title: a domain from a table without a column
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN word FROM wards)
-- refused: line 1, column 97: a column is named with its table; accepted: table.column

-- title: an empty domain
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex IN ())
-- refused: line 1, column 90: ')' is not expected here; accepted: a quoted text, a number, TRUE or FALSE

-- title: a value of a domain twice
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex IN ('F', 'M', 'F'))
-- refused: line 1, column 82: a value of the domain is listed twice; accepted: each value once

-- title: one value of a domain in two spellings
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN day IN ('2024-01-01', '2024-1-1'))
-- refused: line 1, column 92: a value of the domain is listed twice; accepted: each value once

-- title: a value of another type
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN age IN (1, 'two'))
-- refused: line 1, column 92: 'two' is not of type INTEGER; accepted: values of the column's type INTEGER

-- title: a text in double quotes
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex IN ('F', "M"))
-- refused: line 1, column 105: "M" in double quotes is a name, not a text; accepted: single quotes: 'M'

-- title: bins of times with a zone
-- before: sql CREATE TABLE calls (at_ TIMESTAMPTZ)
CREATE PRIVACY POLICY ON calls (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN at_ RANGE 2024-01-01 TO 2025-01-01 STEP MONTH)
-- refused: line 1, column 80: at_ is of type TIMESTAMP WITH TIME ZONE: the bin of a value would depend on the session's time zone; accepted: RANGE after ALTER TABLE .. ALTER at_ TYPE TIMESTAMP USING at_ AT TIME ZONE 'UTC'

-- title: an expression as a value
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex IN (upper('f')))
-- refused: line 1, column 90: 'upper' is not expected here; accepted: a quoted text, a number, TRUE or FALSE

-- title: a label that would be SQL is only a text, so the list goes on
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex IN ('F''); DROP TABLE visits; --', M))
-- refused: line 1, column 121: 'M' is not expected here; accepted: a quoted text, a number, TRUE or FALSE

-- title: BOOLEAN on another type
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex BOOLEAN)
-- refused: line 1, column 82: the column sex is of type VARCHAR; accepted: BOOLEAN on a BOOLEAN column

-- title: ENUM on another type
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex ENUM)
-- refused: line 1, column 82: the column sex is of type VARCHAR; accepted: ENUM on a column of an ENUM type

-- title: a value that the ENUM does not have
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN grade IN ('low', 'none'))
-- refused: line 1, column 92: 'none' is not of type ENUM('low', 'mid', 'high'); accepted: values of the column's type ENUM('low', 'mid', 'high')

-- title: RANGE over texts
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex RANGE 0 TO 10 STEP 1)
-- refused: line 1, column 82: RANGE needs an ordered column, and sex is of type VARCHAR; accepted: numbers, DATE and TIMESTAMP columns; or DOMAIN sex IN ('..', '..')

-- title: RANGE backwards
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN age RANGE 10 TO 0 STEP 1)
-- refused: line 1, column 92: RANGE low TO high is not a whole number of steps; accepted: high = low + k * step, k at least 1

-- title: RANGE of a step that does not divide it
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN age RANGE 0 TO 10 STEP 3)
-- refused: line 1, column 92: RANGE low TO high is not a whole number of steps; accepted: high = low + k * step, k at least 1: 0 TO 12

-- title: RANGE over dates by a text
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN day RANGE DATE '2020-01-01' TO DATE '2021-01-01' STEP '1 fortnight')
-- refused: line 1, column 146: '1 fortnight' is not expected here; accepted: a number, or of dates a word: STEP MONTH, STEP 7 DAYS

-- title: RANGE by an interval in quotes
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN day RANGE DATE '2020-01-01' TO DATE '2021-01-01' STEP INTERVAL '1 moon')
-- refused: line 1, column 163: ')' is not expected here; accepted: a number and a unit such as DAY, HOUR or MONTH: INTERVAL 1 MONTH

-- title: a delta of zero
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1, delta = 0))
-- refused: line 1, column 92: delta is out of range; accepted: a number above 0, below 0.01; or no delta, as in (epsilon = 1)

-- title: RANGE of a step of zero
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN age RANGE 0 TO 10 STEP 0)
-- refused: line 1, column 92: STEP 0 is not above 0; accepted: a step above 0

-- title: RANGE of broken steps over whole numbers
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN age RANGE 0 TO 10 STEP 0.5)
-- refused: line 1, column 92: the column age holds whole numbers; accepted: whole numbers in RANGE and STEP

-- title: RANGE of too many bins
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN score RANGE 0 TO 1e300 STEP 1e-300)
-- refused: line 1, column 92: the range has more than 10000000 bins; accepted: a larger STEP

-- title: RANGE beyond the column's type
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN age RANGE 0 TO 10000000000 STEP 5000000000)
-- refused: line 1, column 92: '5000000000' is not of type INTEGER; accepted: values of the column's type INTEGER

-- title: RANGE with a step that the type cannot hold
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN charge RANGE 0 TO 1 STEP 0.001)
-- refused: line 1, column 92: two edges are one value of DECIMAL(11,2); accepted: a step that the column's type can hold

-- title: RANGE over dates without an interval
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN at RANGE '2024-01-01' TO '2024-02-01' STEP 1)
-- refused: line 1, column 92: RANGE over dates steps by an interval; accepted: STEP DAY, WEEK, MONTH, YEAR, HOUR .., or 7 DAYS

-- title: RANGE over dates by an unknown interval
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN day RANGE '2024-01-01' TO '2024-02-01' STEP INTERVAL 1 FORTNIGHT)
-- refused: line 1, column 92: RANGE over dates steps by an interval; accepted: STEP DAY, WEEK, MONTH, YEAR, HOUR .., or 7 DAYS

-- title: RANGE over dates of hours
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN day RANGE '2024-01-01' TO '2024-01-02' STEP INTERVAL 1 HOUR)
-- refused: line 1, column 92: RANGE low TO high is not a whole number of steps; accepted: high = low + k * step, k at least 1

-- title: RANGE over dates that are no dates
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN day RANGE 'spring' TO 'autumn' STEP INTERVAL 1 DAY)
-- refused: line 1, column 92: 'spring' is not of type DATE; accepted: values of the column's type DATE, as in 2026-12-31

-- title: RANGE over numbers by an interval
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN age RANGE 0 TO 10 STEP INTERVAL 1 DAY)
-- refused: line 1, column 92: an INTERVAL step on a column of numbers; accepted: STEP and a number

-- title: WITH EDGES of a list
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex IN ('F') WITH EDGES)
-- refused: line 1, column 100: 'EDGES' is not expected here; accepted: NULL or OTHER, each once

-- title: WITH OTHER of a range
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN age RANGE 0 TO 10 STEP 1 WITH OTHER)
-- refused: line 1, column 122: 'OTHER' is not expected here; accepted: NULL or EDGES, each once

-- title: WITH OTHER on a column of numbers
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN age IN (1, 2) WITH OTHER)
-- refused: line 1, column 92: WITH OTHER needs a label of the column's type, and age is of type INTEGER; accepted: WITH OTHER on VARCHAR columns; here RANGE .. WITH EDGES, which keeps other values, or IN (..) by itself, where rows with others are in no group

-- title: WITH OTHER whose label is a value
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex IN ('F') WITH OTHER 'F')
-- refused: line 1, column 82: the label of OTHER is one of the values; accepted: WITH OTHER 'another label'

-- title: a clamp of a text
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), CLAMP word BETWEEN 0 AND 1)
-- refused: line 1, column 81: CLAMP needs a column of numbers, and word is of type VARCHAR; accepted: a numeric column; or no CLAMP, and bounds where it is asked: sum(TRY_CAST(word AS DOUBLE), contribution_bounds_per_row => (0, 1))

-- title: a clamp of steps that do not divide it
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), CLAMP charge BETWEEN 0 AND 1 STEP 0.3)
-- refused: line 1, column 91: CLAMP low AND high is not a whole number of steps; accepted: high = low + k * step, k at least 1: BETWEEN 0 AND 1.2

-- title: a clamp with its bounds the wrong way round
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), CLAMP charge BETWEEN 10 AND 0)
-- refused: line 1, column 91: CLAMP charge: the bounds are in the wrong order; accepted: BETWEEN 0 AND 10

-- title: a clamp whose step is zero
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), CLAMP charge BETWEEN 0 AND 10 STEP 0)
-- refused: line 1, column 91: STEP 0 is not above 0; accepted: a step above 0

-- title: a clamp of a column that does not exist
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), CLAMP cost BETWEEN 0 AND 1)
-- refused: line 1, column 81: there is no column 'cost'; accepted: word, sex

-- title: EXPECT ROWS twice
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), EXPECT ROWS 10, EXPECT ROWS 20)
-- refused: line 1, column 91: EXPECT ROWS is given twice; accepted: each item once

-- title: EXPECT ROWS of a text
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), EXPECT ROWS many)
-- refused: line 1, column 87: 'many' is not expected here; accepted: a number for EXPECT ROWS

-- title: MAX EPSILON of zero
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1), MAX EPSILON 0)
-- refused: line 1, column 87: MAX EPSILON is out of range; accepted: a number above 0, at most 1000000

-- title: words after the policy
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1)) AND MORE
-- refused: line 1, column 75: 'AND' is not expected here; accepted: the end of the statement

-- title: a policy that does not close
CREATE PRIVACY POLICY ON secrets (PRIVACY UNIT ROW, BUDGET (epsilon = 1)
-- refused: line 1, column 73: the statement ends too early; accepted: ) or , and PRIVACY UNIT, BUDGET, LIFETIME, DOMAIN, CLAMP, EXPECT ROWS, MAX EPSILON or MIN EPSILON

-- title: altering a policy that is not there
ALTER PRIVACY POLICY ON secrets NEW EPOCH
-- refused: line 1, column 25: memory.main.secrets has no privacy policy; accepted: CREATE PRIVACY POLICY ON it first

-- title: altering nothing
ALTER PRIVACY POLICY ON visits
-- refused: line 1, column 31: the statement ends too early; accepted: NEW EPOCH, PREPARE, UNPREPARE, SET and an item (BUDGET, LIFETIME, DOMAIN, CLAMP, PRIVACY UNIT, EXPECT ROWS, MAX EPSILON, MIN EPSILON), DROP DOMAIN column, DROP CLAMP column, RESERVE share FOR name, RELEASE name

-- title: altering something unknown
ALTER PRIVACY POLICY ON visits RENAME TO calls
-- refused: line 1, column 32: 'RENAME' is not expected here; accepted: NEW EPOCH, PREPARE, UNPREPARE, SET and an item (BUDGET, LIFETIME, DOMAIN, CLAMP, PRIVACY UNIT, EXPECT ROWS, MAX EPSILON, MIN EPSILON), DROP DOMAIN column, DROP CLAMP column, RESERVE share FOR name, RELEASE name

-- title: dropping a domain that is not there
ALTER PRIVACY POLICY ON visits DROP DOMAIN note
-- refused: line 1, column 25: 'note' has no domain; accepted: a column that has one

-- title: dropping a clamp that is not there
ALTER PRIVACY POLICY ON visits DROP CLAMP charge
-- refused: line 1, column 25: 'charge' has no clamp; accepted: a column that has one

-- title: a smaller budget than what is spent
ALTER PRIVACY POLICY ON trial SET BUDGET (epsilon = 0.5)
-- refused: line 1, column 25: the budget of memory.main.trial.ROW cannot be epsilon = 0.5: 0.75 is already spent; accepted: epsilon of at least 0.75

-- title: a budget of rho below what is spent
ALTER PRIVACY POLICY ON trial SET BUDGET (rho = 0.01)
-- refused: line 1, column 25: the budget of memory.main.trial.ROW cannot be rho = 0.01: 0.268769 is already spent; accepted: rho of at least 0.268769

-- title: another unit after spending
ALTER PRIVACY POLICY ON trial SET PRIVACY UNIT sex MAX ROWS 1
-- refused: line 1, column 25: the privacy unit of memory.main.trial cannot change once something is spent; accepted: the unit that it had

-- title: another unit after spending, by replacing the policy
CREATE OR REPLACE PRIVACY POLICY ON trial (PRIVACY UNIT sex MAX ROWS 1, BUDGET (epsilon = 1))
-- refused: line 1, column 37: the privacy unit of memory.main.trial cannot change once something is spent; accepted: the unit that it had

-- title: another unit after spending, by dropping the policy first
-- before: DROP PRIVACY POLICY ON trial
CREATE PRIVACY POLICY ON trial (PRIVACY UNIT sex MAX ROWS 1, BUDGET (epsilon = 1))
-- refused: line 1, column 26: the privacy unit of memory.main.trial cannot change once something is spent; accepted: the unit that it had

-- title: a dropped policy does not reset what was spent
-- before: DROP PRIVACY POLICY ON trial
-- before: CREATE PRIVACY POLICY ON trial (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN sex IN ('F'))
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM trial
-- refused: the statement asks for epsilon = 1 but the budget of memory.main.trial.ROW has 0.25 of 1 left; accepted: epsilon of at most 0.25

-- title: dropping a policy that is not there
DROP PRIVACY POLICY ON secrets
-- refused: line 1, column 24: secrets has no privacy policy; accepted: a table that has one, or IF EXISTS

-- title: declaring a private table public
DECLARE PUBLIC TABLE visits
-- refused: line 1, column 22: memory.main.visits has or had a privacy policy; accepted: a table that never held protected rows

-- title: declaring a table public that had a policy
-- before: DROP PRIVACY POLICY ON trial
DECLARE PUBLIC TABLE trial
-- refused: line 1, column 22: memory.main.trial has or had a privacy policy; accepted: a table that never held protected rows

-- title: declaring a view public
DECLARE PUBLIC TABLE visit_view
-- refused: line 1, column 22: 'visit_view' is a view; accepted: the table that it reads; of a file, CREATE TABLE t AS FROM 'file'

-- title: declaring a table public that does not exist
DECLARE PUBLIC TABLE nowhere
-- refused: line 1, column 22: there is no table 'nowhere'; accepted: an existing table

-- title: declaring two tables public
DECLARE PUBLIC TABLE wards, regions
-- refused: line 1, column 27: ',' is not expected here; accepted: the end of the statement

-- title: declaring a file public
DECLARE PUBLIC TABLE 'visits.csv'
-- refused: line 1, column 22: 'visits.csv' is not expected here; accepted: a table name; a file is a table after CREATE TABLE t AS FROM 'file'

-- title: a name of four parts
DECLARE PUBLIC TABLE a.b.c.d
-- refused: line 1, column 29: a table name has at most three parts; accepted: database.schema.table

-- title: a public table replaced by a view over a private one
-- before: sql DROP TABLE wards
-- before: sql CREATE VIEW wards AS SELECT note AS name FROM visits
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits JOIN wards ON ward = name
-- refused: line 1, column 82: the view 'wards' has no privacy policy, so nothing is answered from it; accepted: a table with a policy (CREATE PRIVACY POLICY ON ..), or DECLARE PUBLIC TABLE if it is public

-- title: a private table replaced by a view
-- before: sql ALTER TABLE trial RENAME TO kept
-- before: sql CREATE VIEW trial AS SELECT * FROM kept UNION ALL SELECT * FROM kept
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM trial
-- refused: memory.main.trial was replaced by a view, or by a table with generated columns, or a COLLATION other than NOCASE and NOACCENT; accepted: a table of stored columns, without such a COLLATE

-- title: a macro that hides a built-in function
-- before: sql CREATE MACRO UPPER(x) AS x
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM visits WHERE upper(note) = 'X'
-- refused: line 1, column 1: a macro or function of this database hides the built-in upper; accepted: dropping or renaming it, so that what runs over private rows is what was checked

-- title: a macro that hides a function of the count itself
-- before: sql CREATE MACRO hash(x, y) AS 1
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM patients
-- refused: line 1, column 1: a macro or function of this database hides the built-in hash; accepted: dropping or renaming it, so that what runs over private rows is what was checked

-- title: RANGE over dates without end
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN day RANGE '-infinity' TO 'infinity' STEP INTERVAL 1 DAY)
-- refused: line 1, column 92: these bounds and this step give no list of bins; accepted: bounds in the range of TIMESTAMP, at most 10000000 steps

-- title: RANGE over dates by too long a step
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN day RANGE '2024-01-01' TO '2024-02-01' STEP INTERVAL 99999999999999999999 DAY)
-- refused: line 1, column 92: these bounds and this step give no list of bins; accepted: bounds in the range of TIMESTAMP, at most 10000000 steps

-- title: RANGE over dates beyond every TIMESTAMP
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN day RANGE '4000000-01-01' TO '4000001-01-01' STEP INTERVAL 1 YEAR)
-- refused: line 1, column 92: these bounds and this step give no list of bins; accepted: bounds in the range of TIMESTAMP, at most 10000000 steps

-- title: one value of a domain with two signs
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN score IN (0.0, -0.0))
-- refused: line 1, column 92: a value of the domain is listed twice; accepted: each value once

-- title: WITH NULL twice
CREATE OR REPLACE PRIVACY POLICY ON visits (PRIVACY UNIT ROW, BUDGET (epsilon = 1), DOMAIN ward IN ('w0') WITH NULL WITH NULL)
-- refused: line 1, column 122: 'NULL' is not expected here; accepted: NULL or OTHER, each once

-- title: a reference to a column that is no key
-- before: sql CREATE TABLE stays (id INTEGER, patient INTEGER)
-- before: CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient REFERENCES patients.id MAX ROWS 2)
-- before: sql CREATE TABLE doses (stay INTEGER)
CREATE PRIVACY POLICY ON doses (PRIVACY UNIT stay REFERENCES stays.id MAX ROWS 5)
-- refused: line 1, column 46: memory.main.stays.id is not a key: rows of two units could share one value; accepted: a PRIMARY KEY or UNIQUE constraint on id alone (ALTER TABLE .. ADD PRIMARY KEY), or a column with the unit itself

-- title: a reference of another type
-- before: sql CREATE TABLE stays (id INTEGER PRIMARY KEY, patient INTEGER)
-- before: CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient REFERENCES patients.id MAX ROWS 2)
-- before: sql CREATE TABLE doses (stay VARCHAR)
CREATE PRIVACY POLICY ON doses (PRIVACY UNIT stay REFERENCES stays.id MAX ROWS 5)
-- refused: line 1, column 46: stay is VARCHAR, memory.main.stays.id is INTEGER; accepted: a reference of the same type

-- title: a reference to a key that texts of two spellings share
-- before: sql CREATE TABLE stays (id VARCHAR COLLATE NOCASE PRIMARY KEY, patient INTEGER)
-- before: CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient REFERENCES patients.id MAX ROWS 2)
-- before: sql CREATE TABLE doses (stay VARCHAR)
CREATE PRIVACY POLICY ON doses (PRIVACY UNIT stay REFERENCES stays.id MAX ROWS 5)
-- refused: line 1, column 46: a COLLATION makes keys equal that are different texts; accepted: memory.main.stays without COLLATE

-- title: a reference to a table that protects single rows
-- before: sql CREATE TABLE doses (visit INTEGER)
CREATE PRIVACY POLICY ON doses (PRIVACY UNIT visit REFERENCES visits.patient_id MAX ROWS 5)
-- refused: line 1, column 46: the policy of memory.main.visits protects single rows; accepted: PRIVACY UNIT column in that policy

-- title: a parent declared after its child
-- before: sql CREATE TABLE stays (id INTEGER PRIMARY KEY, patient INTEGER)
-- before: sql CREATE TABLE doses (stay INTEGER)
-- before: CREATE PRIVACY POLICY ON doses (PRIVACY UNIT stay REFERENCES stays.id MAX ROWS 5, BUDGET (epsilon = 1))
CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient REFERENCES patients.id MAX ROWS 2)
-- refused: line 1, column 26: the policy of memory.main.doses refers to memory.main.stays for another privacy unit; accepted: that unit; or DROP PRIVACY POLICY ON memory.main.doses, and declare it after this one

-- title: a parent whose policy is dropped
-- before: sql CREATE TABLE stays (id INTEGER PRIMARY KEY, patient INTEGER)
-- before: CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient REFERENCES patients.id MAX ROWS 2)
-- before: sql CREATE TABLE doses (stay INTEGER)
-- before: CREATE PRIVACY POLICY ON doses (PRIVACY UNIT stay REFERENCES stays.id MAX ROWS 5)
-- before: DROP PRIVACY POLICY ON stays
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM doses
-- refused: line 1, column 70: the policy of memory.main.stays no longer names the privacy unit of these rows; accepted: the policy of memory.main.doses declared anew, after that of memory.main.stays

-- title: a parent that has lost its key
-- before: sql CREATE TABLE stays (id INTEGER PRIMARY KEY, patient INTEGER)
-- before: CREATE PRIVACY POLICY ON stays (PRIVACY UNIT patient REFERENCES patients.id MAX ROWS 2)
-- before: sql CREATE TABLE doses (stay INTEGER)
-- before: CREATE PRIVACY POLICY ON doses (PRIVACY UNIT stay REFERENCES stays.id MAX ROWS 5)
-- before: sql CREATE OR REPLACE TABLE stays (id INTEGER, patient INTEGER)
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) count(*) FROM doses
-- refused: line 1, column 70: memory.main.stays.id is not a key: rows of two units could share one value; accepted: a PRIMARY KEY or UNIQUE constraint on id alone (ALTER TABLE .. ADD PRIMARY KEY), or a column with the unit itself

-- title: a range without a step
ALTER PRIVACY POLICY ON visits SET DOMAIN age RANGE 0 TO 90
-- refused: line 1, column 60: the statement ends too early; accepted: STEP and a width, as in STEP 5, or of dates STEP MONTH

-- title: numbers for a text
ALTER PRIVACY POLICY ON visits SET DOMAIN sex IN (1, 2)
-- refused: line 1, column 43: sex is VARCHAR; accepted: quoted texts, as in IN ('1', '2')

-- title: MAX ROWS by itself
ALTER PRIVACY POLICY ON patients SET MAX ROWS 10
-- refused: line 1, column 38: MAX ROWS belongs to PRIVACY UNIT; accepted: ALTER PRIVACY POLICY ON patients SET PRIVACY UNIT column MAX ROWS 10

-- title: a policy of a table that nearly exists
CREATE PRIVACY POLICY ON offrs (PRIVACY UNIT ROW, BUDGET (epsilon = 1))
-- refused: line 1, column 26: there is no table 'offrs'; accepted: offers (did you mean that?), or an existing table
