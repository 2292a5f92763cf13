"""Twenty plans of the registry of deployments (opendp/deployments-registry-data), on made-up data of their shape.

Names, privacy units and prices are those of the registry. The words "left out" say which part of a deployment dpduck
does not do. docs/registry.md has the same in a table.
"""

from __future__ import annotations

from dataclasses import dataclass

CANARY = "a secret nobody else has"
"""A text of one row of each deployment. No file of a release may have it."""

MACROS = """
CREATE TEMP MACRO pick(i, salt, n) AS CAST(hash(i, salt) % n AS INTEGER);
CREATE TEMP MACRO few(i, salt, n) AS CAST(floor(n * pow(hash(i, salt) % 1000 / 1000, 3)) AS INTEGER);
CREATE TEMP MACRO tail(i, salt) AS 1 / (1 - hash(i, salt) % 1000 / 1000);
CREATE TEMP MACRO canary(i, other) AS CASE WHEN i = 17 THEN 'a secret nobody else has' ELSE other END;
"""
"""Numbers from 0 to n - 1, evenly and mostly small, a heavy tail from 1 to 1,000, and the text of one row."""


@dataclass(frozen=True)
class RegistryPlan:
    """A deployment. name, file: in the registry. unit, price: its own, in a few words.

    released: the tables. left_out: what the deployment does and the plan does not, or does in another way. tables: SQL
    that makes the rows. policies, plan: statements with ; between them. units: the number of privacy units.
    """

    name: str
    file: str
    unit: str
    price: str
    released: str
    left_out: str
    tables: str
    policies: str
    plan: str
    units: int = 1


PLANS = (
    RegistryPlan(
        name="Current Pageviews",
        file="wikimedia_current_usage_data",
        unit="a device on one day",
        price="rho = 0.015 a day",
        released="views by day, page and country, if above 90",
        left_out="Pages are listed beforehand. The deployment lists them by their true views.",
        tables="""
            CREATE TABLE pageviews AS SELECT 'device ' || pick(i, 1, 900) AS device,
                TIMESTAMP '2026-03-01' + INTERVAL (pick(i, 2, 172800)) SECOND AS viewed,
                canary(i, ['Main Page', 'Duck', 'Noise', 'Census'][1 + few(i, 3, 4)]) AS page,
                ['FR', 'IN', 'BR', 'NG', NULL][1 + few(i, 4, 5)] AS country FROM range(6000) AS r(i)""",
        policies="""
            CREATE PRIVACY POLICY ON pageviews (PRIVACY UNIT device PER DAY OF viewed MAX ROWS 10,
                BUDGET (rho = 0.015) PER DAY, DOMAIN viewed RANGE 2026-03-01 TO 2026-03-03 STEP DAY,
                DOMAIN page IN ('Main Page', 'Duck', 'Noise', 'Census'), DOMAIN country IN ('FR', 'IN', 'BR', 'NG'))""",
        plan="""
            CREATE PRIVATE VIEW views OPTIONS (rho = 0.015, title = 'Views by day, page and country',
                description = 'Devices that saw a page on a day. Counts below 90 are not shown.',
                answer_units = 'views') AS
            SELECT viewed, page, country, count(DISTINCT device) AS views FROM pageviews
            WHERE viewed >= DATE '2026-03-01' AND viewed < DATE '2026-03-03'
            GROUP BY viewed, page, country HAVING views > 90""",
    ),
    RegistryPlan(
        name="Historical Pageviews",
        file="wikimedia_historical_usage_data",
        unit="30 views on one day",
        price="epsilon = 1",
        released="views by page and country, if above 450",
        left_out="The unit is one view at epsilon = 1/30, which is 1 for 30 views. "
        "Rows are single views, not hourly sums.",
        tables="""
            CREATE TABLE old_views AS SELECT TIMESTAMP '2019-05-01' + INTERVAL (pick(i, 2, 86400)) SECOND AS viewed,
                canary(i, ['Main Page', 'Duck', 'Noise'][1 + few(i, 3, 3)]) AS page,
                ['FR', 'IN', NULL][1 + few(i, 4, 3)] AS country FROM range(8000) AS r(i)""",
        policies="""
            CREATE PRIVACY POLICY ON old_views (PRIVACY UNIT ROW PER DAY OF viewed, BUDGET (epsilon = 0.0333) PER DAY,
                DOMAIN page IN ('Main Page', 'Duck', 'Noise'), DOMAIN country IN ('FR', 'IN') WITH NULL)""",
        plan="""
            CREATE PRIVATE VIEW old_views_by_page OPTIONS (epsilon = 0.0333, title = 'Views of 1 May 2019',
                description = 'Thirty views of one day are protected with epsilon = 1.', answer_units = 'views') AS
            SELECT page, country, count(*) AS views FROM old_views
            WHERE viewed >= DATE '2019-05-01' AND viewed < DATE '2019-05-02'
            GROUP BY page, country HAVING views > 450""",
    ),
    RegistryPlan(
        name="Wikipedia Geoeditors Activity Statistics",
        file="wikimedia_editor_activity_statistics_2023",
        unit="an editor of one project in one country, in one month",
        price="epsilon = 2 a month",
        released="editors and edits by project, country and activity",
        left_out="Sums are of all groups, not of those with enough editors alone. "
        "Countries of higher risk would have a view of their own at a smaller epsilon.",
        tables="""
            CREATE TABLE activity AS SELECT 'editor ' || i // 2 || ' in ' || country || ', ' || project AS account,
                project, country, DATE '2026-01-01' + CAST(31 * pick(i, 1, 2) AS INTEGER) AS month,
                CAST(edits AS INTEGER) AS edits,
                CASE WHEN edits < 5 THEN '1 to 4' WHEN edits < 100 THEN '5 to 99' ELSE '100 or more' END AS activity
            FROM (SELECT i, canary(i, ['frwiki', 'hiwiki', 'ptwiki'][1 + few(i, 3, 3)]) AS project,
                    ['France', 'India', 'Brazil', 'Nigeria'][1 + pick(i, 4, 4)] AS country, floor(tail(i, 5)) AS edits
                FROM range(4000) AS r(i))""",
        policies="""
            CREATE PRIVACY POLICY ON activity (PRIVACY UNIT account PER MONTH OF month MAX ROWS 1,
                BUDGET (epsilon = 2) PER MONTH, DOMAIN project IN ('frwiki', 'hiwiki', 'ptwiki'),
                DOMAIN country IN ('France', 'India', 'Brazil', 'Nigeria'),
                DOMAIN activity IN ('1 to 4', '5 to 99', '100 or more'), CLAMP edits BETWEEN 1 AND 101)""",
        plan="""
            CREATE PRIVATE VIEW editors OPTIONS (epsilon = 1.1, title = 'Editors in January 2026',
                answer_units = 'editors') AS
            SELECT project, country, activity, count(*) AS editors FROM activity
            WHERE month >= DATE '2026-01-01' AND month < DATE '2026-02-01'
            GROUP BY project, country, activity HAVING editors > 8;
            CREATE PRIVATE VIEW edits OPTIONS (epsilon = 0.9, title = 'Edits in January 2026',
                answer_units = 'edits') AS
            SELECT project, country, activity, sum(edits) AS edits FROM activity
            WHERE month >= DATE '2026-01-01' AND month < DATE '2026-02-01'
            GROUP BY project, country, activity""",
    ),
    RegistryPlan(
        name="Wikipedia Russian Editor Activity Statistics",
        file="wikimedia_russian_editor_activity_statistics_2023",
        unit="an account in one month",
        price="epsilon = 0.1 a month",
        released="accounts by month, activity and status",
        left_out="Nothing. LIFETIME also says what an account of all 24 months may lose.",
        tables="""
            CREATE TABLE accounts AS SELECT canary(i, 'account ' || i // 12) AS account,
                DATE '2022-01-01' + CAST(i % 24 * 30.4 AS INTEGER) AS month,
                ['1 to 4', '5 to 99', '100 or more'][1 + few(i // 12, 2, 3)] AS activity,
                ['permanent', 'anonymous', 'temporary', NULL][1 + few(i, 3, 4)] AS status FROM range(6000) AS r(i)""",
        policies="""
            CREATE PRIVACY POLICY ON accounts (PRIVACY UNIT account PER MONTH OF month MAX ROWS 1,
                BUDGET (epsilon = 0.1) PER MONTH, LIFETIME (epsilon = 2.4),
                DOMAIN month RANGE 2022-01-01 TO 2024-01-01 STEP MONTH,
                DOMAIN activity IN ('1 to 4', '5 to 99', '100 or more'),
                DOMAIN status IN ('anonymous', 'temporary', 'permanent') WITH NULL)""",
        plan="""
            CREATE PRIVATE VIEW russian_accounts OPTIONS (epsilon = 0.1, title = 'Accounts by month and activity',
                answer_units = 'accounts') AS
            SELECT month, activity, status, count(*) AS accounts FROM accounts
            WHERE month >= DATE '2022-01-01' AND month < DATE '2024-01-01' GROUP BY month, activity, status""",
    ),
    RegistryPlan(
        name="Broadband Coverage",
        file="broadband_coverage",
        unit="a user",
        price="epsilon = 0.2",
        released="users by zip code with 25 Mbps and with the services",
        left_out="Coverage in per cent of the public households is computed from the two tables afterwards.",
        tables="""
            CREATE TABLE zips AS SELECT printf('%05d', 501 + 37 * i) AS zip, 100 + pick(i, 9, 900) AS households
                FROM range(30) AS r(i);
            CREATE TABLE devices AS SELECT 'user ' || few(i, 1, 4000) AS owner,
                canary(i, printf('%05d', 501 + 37 * few(few(i, 1, 4000), 2, 32))) AS zip, 5 * tail(i, 3) AS mbps,
                pick(i, 4, 3) > 0 AS uses_services FROM range(8000) AS r(i)""",
        policies="""
            DECLARE PUBLIC TABLE zips;
            CREATE PRIVACY POLICY ON devices (PRIVACY UNIT owner MAX ROWS 3, BUDGET (epsilon = 0.2),
                DOMAIN zip FROM zips.zip)""",
        plan="""
            CREATE PRIVATE VIEW fast_users OPTIONS (epsilon = 0.1, max_rows_contributed = 1, nonnegative = TRUE,
                title = 'Users with at least 25 Mbps', answer_units = 'users') AS
            SELECT zip, count(*) AS users FROM devices WHERE mbps >= 25 GROUP BY zip;
            CREATE PRIVATE VIEW service_users OPTIONS (epsilon = 0.1, max_rows_contributed = 1, nonnegative = TRUE,
                title = 'Users of the services', answer_units = 'users') AS
            SELECT zip, count(*) AS users FROM devices WHERE uses_services GROUP BY zip""",
    ),
    RegistryPlan(
        name="COVID-19 Search Trends Symptoms",
        file="covid19_search_trends_symptoms",
        unit="a user on one day",
        price="epsilon = 1.68 a day",
        released="users by symptom for country, region and county, and all users of a region",
        left_out="Reliable counts alone are shown, by HAVING. Trends in per cent are divided out afterwards.",
        tables="""
            CREATE TABLE searches AS SELECT few(i, 1, 1800) AS user_id,
                TIMESTAMP '2020-10-01' + INTERVAL (pick(i, 2, 86400)) SECOND AS searched,
                canary(i, ['cough', 'fever', 'fatigue', 'anosmia', NULL][1 + pick(i, 3, 5)]) AS symptom,
                ['North', 'South', 'West'][1 + few(few(i, 1, 1800), 4, 3)] AS region,
                'county ' || few(few(i, 1, 1800), 4, 12) AS county FROM range(7000) AS r(i)""",
        policies="""
            CREATE PRIVACY POLICY ON searches (PRIVACY UNIT user_id PER DAY OF searched MAX ROWS 3,
                BUDGET (epsilon = 1.68) PER DAY, DOMAIN symptom IN ('cough', 'fever', 'fatigue', 'anosmia'),
                DOMAIN region IN ('North', 'South', 'West'),
                DOMAIN county IN ('county 0', 'county 1', 'county 2', 'county 3', 'county 4', 'county 5'))""",
        plan="""
            CREATE PRIVATE VIEW in_country OPTIONS (epsilon = 0.168, title = 'Searches in the country') AS
            SELECT symptom, count(DISTINCT user_id) AS users, dp_stderr(users) AS users_stderr FROM searches
            WHERE searched >= DATE '2020-10-01' AND searched < DATE '2020-10-02'
            GROUP BY symptom HAVING users > 3 * users_stderr;
            CREATE PRIVATE VIEW in_region OPTIONS (epsilon = 0.37, title = 'Searches by region') AS
            SELECT region, symptom, count(DISTINCT user_id) AS users, dp_stderr(users) AS users_stderr FROM searches
            WHERE searched >= DATE '2020-10-01' AND searched < DATE '2020-10-02'
            GROUP BY region, symptom HAVING users > 3 * users_stderr;
            CREATE PRIVATE VIEW in_county OPTIONS (epsilon = 1.1, title = 'Searches by county') AS
            SELECT county, symptom, count(DISTINCT user_id) AS users, dp_stderr(users) AS users_stderr FROM searches
            WHERE searched >= DATE '2020-10-01' AND searched < DATE '2020-10-02'
            GROUP BY county, symptom HAVING users > 3 * users_stderr;
            CREATE PRIVATE VIEW everybody OPTIONS (epsilon = 0.042, max_rows_contributed = 1,
                title = 'Users by region') AS
            SELECT region, count(*) AS users FROM searches
            WHERE searched >= DATE '2020-10-01' AND searched < DATE '2020-10-02' GROUP BY region""",
    ),
    RegistryPlan(
        name="Vaccine Search Insights",
        file="vaccine_search_insights",
        unit="a user on one day",
        price="epsilon = 2.19, delta = 1e-5 a day",
        released="searches of a week by place and category",
        left_out="Scores from 0 to 100 are computed afterwards.",
        tables="""
            CREATE TABLE vaccine_searches AS SELECT 'user ' || few(i, 1, 2500) AS user_id,
                TIMESTAMP '2021-06-07' + INTERVAL (pick(i, 2, 604800)) SECOND AS searched,
                canary(i, ['eligibility', 'where to get it', 'side effects'][1 + pick(i, 3, 3)]) AS category,
                printf('%05d', 10001 + few(i, 4, 9)) AS zip FROM range(7000) AS r(i)""",
        policies="""
            CREATE PRIVACY POLICY ON vaccine_searches (PRIVACY UNIT user_id PER DAY OF searched MAX ROWS 4,
                BUDGET (epsilon = 2.19, delta = 1e-5) PER DAY,
                DOMAIN category IN ('eligibility', 'where to get it', 'side effects'),
                DOMAIN zip IN ('10001', '10002', '10003', '10004', '10005', '10006') WITH OTHER 'elsewhere')""",
        plan="""
            CREATE PRIVATE VIEW vaccine_interest OPTIONS (epsilon = 2.19, delta = 1e-5,
                title = 'Searches of the week of 7 June 2021', answer_units = 'searches') AS
            SELECT zip, category, count(*) AS searches FROM vaccine_searches
            WHERE searched >= DATE '2021-06-07' AND searched < DATE '2021-06-14' GROUP BY CUBE (zip, category)""",
    ),
    RegistryPlan(
        name="Community Mobility Place Visits",
        file="google_mobility",
        unit="a user on one day",
        price="epsilon = 2.64 a day",
        released="visits by category for country, region and county, hours at home, people at work",
        left_out="Changes since a baseline of five weeks are computed afterwards. "
        "Rows above MAX ROWS are left out in keyed order, not by lot.",
        tables="""
            CREATE TABLE place_visits AS SELECT DISTINCT few(i, 1, 1500) AS user_id, DATE '2020-04-01' AS day,
                canary(i, ['retail', 'parks', 'transit', 'grocery'][1 + few(i, 2, 4)]) AS category,
                ['East', 'West'][1 + few(i, 1, 1500) % 2] AS region, 'county ' || few(i, 1, 1500) % 6 AS county
                FROM range(6000) AS r(i);
            CREATE TABLE homes AS SELECT i AS user_id, DATE '2020-04-01' AS day, ['East', 'West'][1 + i % 2] AS region,
                CASE WHEN i % 9 > 0 THEN least(24, 8 + 2 * tail(i, 3)) END AS hours, pick(i, 4, 3) = 0 AS at_work
                FROM range(1500) AS r(i)""",
        policies="""
            CREATE PRIVACY POLICY ON place_visits (PRIVACY UNIT user_id PER DAY OF day MAX ROWS 4,
                BUDGET (epsilon = 2.64) PER DAY, DOMAIN category IN ('retail', 'parks', 'transit', 'grocery'),
                DOMAIN region IN ('East', 'West'),
                DOMAIN county IN ('county 0', 'county 1', 'county 2', 'county 3', 'county 4', 'county 5'));
            CREATE PRIVACY POLICY ON homes (PRIVACY UNIT user_id REFERENCES place_visits.user_id PER DAY OF day
                MAX ROWS 1, DOMAIN region IN ('East', 'West'), CLAMP hours BETWEEN 0 AND 24 STEP 0.25)""",
        plan="""
            CREATE PRIVATE VIEW visits OPTIONS (epsilon = 1.76, title = 'Visits of public places',
                answer_units = 'visits', weights = (1, 1, 2)) AS
            SELECT category, region, county, count(*) AS visits FROM place_visits WHERE day = DATE '2020-04-01'
            GROUP BY GROUPING SETS ((category), (category, region), (category, county));
            CREATE PRIVATE VIEW residential OPTIONS (epsilon = 0.44, title = 'Hours at home',
                answer_units = 'hours') AS
            SELECT region, avg(hours) AS hours FROM homes WHERE day = DATE '2020-04-01' GROUP BY region;
            CREATE PRIVATE VIEW workplaces OPTIONS (epsilon = 0.44, title = 'People at work for an hour or more',
                answer_units = 'people') AS
            SELECT region, count_if(at_work) AS people FROM homes WHERE day = DATE '2020-04-01' GROUP BY region""",
    ),
    RegistryPlan(
        name="Mobility Trends During Hurricane",
        file="mobility_trends_hurricane",
        unit="a user",
        price="epsilon = 10",
        released="residents by tract, residents away by night, destinations, nights away",
        left_out="The registry gives four operations as CTU, CE, CED and SD. "
        "The plan reads them as tracts, evacuated people, destinations and lengths of stay.",
        tables="""
            CREATE TABLE nights AS SELECT i // 14 AS resident, DATE '2017-08-20' + CAST(i % 14 AS INTEGER) AS night,
                'tract ' || few(i // 14, 1, 8) AS tract, CASE WHEN i % 14 > 4 AND few(i // 14, 2, 10) > i % 14 - 6
                THEN canary(i, ['Austin', 'Dallas', 'San Antonio', 'elsewhere'][1 + few(i // 14, 3, 4)]) END AS away_in
                FROM range(7000) AS r(i)""",
        policies="""
            CREATE PRIVACY POLICY ON nights (PRIVACY UNIT resident MAX ROWS 14, BUDGET (epsilon = 10),
                DOMAIN night RANGE 2017-08-20 TO 2017-09-03 STEP DAY,
                DOMAIN tract IN ('tract 0', 'tract 1', 'tract 2', 'tract 3', 'tract 4', 'tract 5'),
                DOMAIN away_in IN ('Austin', 'Dallas', 'San Antonio', 'elsewhere'))""",
        plan="""
            CREATE PRIVATE VIEW tracts OPTIONS (epsilon = 4, max_rows_contributed = 1, title = 'Residents by tract',
                answer_units = 'residents') AS
            SELECT tract, count(*) AS residents FROM nights GROUP BY tract;
            CREATE PRIVATE STREAM away OPTIONS (epsilon = 2, periods = 14, title = 'Residents away, by night',
                answer_units = 'residents') AS
            SELECT night, count(away_in) AS residents FROM nights GROUP BY night;
            REFRESH PRIVATE STREAM away;
            CREATE PRIVATE VIEW destinations OPTIONS (epsilon = 1, max_rows_contributed = 1,
                title = 'First place away', answer_units = 'residents') AS
            SELECT away_in, count(*) AS residents FROM nights WHERE away_in IS NOT NULL GROUP BY away_in;
            CREATE PRIVATE VIEW lengths OPTIONS (epsilon = 3, title = 'Nights away', answer_units = 'residents') AS
            SELECT nights_away, count(*) AS residents
            FROM (SELECT resident, count(away_in) AS nights_away FROM nights GROUP BY resident) GROUP BY nights_away""",
    ),
    RegistryPlan(
        name="Shared Mobility Dataset",
        file="shared_mobility_dataset",
        unit="a trip",
        price="epsilon = 0.66",
        released="trips of a week from cell to cell, of all possible pairs, if above 15 after noise",
        left_out="Cells are listed, and a filter takes the place of k-anonymity. So the plan needs no delta.",
        tables="""
            CREATE TABLE cells AS SELECT printf('%08x', 2290649000 + 16 * i) AS cell FROM range(1000) AS r(i);
            CREATE TABLE trips AS SELECT TIMESTAMP '2016-05-02' + INTERVAL (pick(i, 1, 604800)) SECOND AS started,
                canary(i, printf('%08x', 2290649000 + 16 * few(i, 2, 9))) AS origin,
                printf('%08x', 2290649000 + 16 * few(i, 3, 9)) AS destination FROM range(6000) AS r(i)""",
        policies="""
            DECLARE PUBLIC TABLE cells;
            CREATE PRIVACY POLICY ON trips (PRIVACY UNIT ROW PER WEEK OF started, BUDGET (epsilon = 0.66) PER WEEK,
                DOMAIN (origin, destination) FROM cells.cell)""",
        plan="""
            CREATE PRIVATE VIEW flows OPTIONS (epsilon = 0.66, summary = 'filter', theta = 15,
                title = 'Trips from cell to cell', description = 'The week of 2 May 2016.', answer_units = 'trips') AS
            SELECT origin, destination, count(*) AS n FROM trips
            WHERE started >= DATE '2016-05-02' AND started < DATE '2016-05-09' GROUP BY origin, destination""",
    ),
    RegistryPlan(
        name="User-URL Privacy Dataset",
        file="user_url_privacy",
        unit="one action of a user on one link",
        price="rho = 0.0052, and 0.0728 for all 14 actions of a user",
        released="actions on links by age, country and gender",
        left_out="Links are listed. The deployment takes those with 100 noisy shares. Rows that nobody has are shown.",
        tables="""
            CREATE TABLE links AS SELECT 'https://news.example/' || i AS url FROM range(6) AS r(i);
            CREATE TABLE actions AS SELECT DISTINCT 'user ' || few(i, 1, 4000) AS person,
                canary(i, 'https://news.example/' || few(i, 2, 7)) AS url,
                ['view', 'click', 'share', 'like'][1 + few(i, 3, 4)] AS action, ['US', 'FR', 'IN'][1 + few(i, 4, 3)]
                AS country, ['18-24', '25-44', '45+', NULL][1 + pick(few(i, 1, 4000), 5, 4)] AS age,
                ['female', 'male', NULL][1 + pick(few(i, 1, 4000), 6, 3)] AS gender FROM range(8000) AS r(i)""",
        policies="""
            DECLARE PUBLIC TABLE links;
            CREATE PRIVACY POLICY ON actions (PRIVACY UNIT (person, url, action) MAX ROWS 1, BUDGET (rho = 0.0052),
                DOMAIN url FROM links.url, DOMAIN action IN ('view', 'click', 'share', 'like'),
                DOMAIN country IN ('US', 'FR', 'IN'), DOMAIN age IN ('18-24', '25-44', '45+') WITH NULL,
                DOMAIN gender IN ('female', 'male') WITH NULL)""",
        plan="""
            CREATE PRIVATE VIEW link_actions OPTIONS (rho = 0.0052, title = 'Actions on links',
                answer_units = 'actions') AS
            SELECT url, action, country, age, gender, count(*) AS actions FROM actions
            GROUP BY url, action, country, age, gender""",
    ),
    RegistryPlan(
        name="Israel's National Registry of Live Births of 2014",
        file="birth_dataset",
        unit="a birth",
        price="epsilon = 9.98",
        released="made-up births, and noisy margins to judge them by",
        left_out="The deployment fits several models, and chooses one by private selection at twice the price. "
        "The plan fits one.",
        tables="""
            CREATE TABLE births AS SELECT canary(i, 'hospital ' || few(i, 1, 30)) AS hospital,
                DATE '2014-01-01' + pick(i, 2, 365) AS born, 18 + few(i, 3, 30) AS mother_age,
                CASE WHEN pick(i, 4, 50) > 0 THEN 24 + pick(i, 5, 10) + pick(i, 6, 10) END AS week,
                ['singleton', 'twins', 'triplets'][1 + few(i, 7, 3)] AS plurality, pick(i, 8, 2) = 0 AS girl,
                500 + pick(i, 5, 10) * 150 + pick(i, 9, 2000) AS grams FROM range(5000) AS r(i)""",
        policies="""
            CREATE PRIVACY POLICY ON births (PRIVACY UNIT ROW, BUDGET (epsilon = 9.98), EXPECT ROWS 5000,
                DOMAIN born RANGE 2014-01-01 TO 2015-01-01 STEP MONTH, DOMAIN mother_age RANGE 15 TO 50 STEP 5,
                DOMAIN week RANGE 24 TO 44 STEP 4 WITH NULL, DOMAIN girl BOOLEAN,
                DOMAIN plurality IN ('singleton', 'twins', 'triplets'), DOMAIN grams RANGE 500 TO 5000 STEP 500)""",
        plan="""
            CREATE PRIVATE TABLE made_up_births OPTIONS (epsilon = 4, rows = 5000, inside = TRUE) AS
            SELECT born, mother_age, week, plurality, girl, grams FROM births WORKLOAD MARGINALS (2);
            CREATE PRIVATE VIEW birth_criteria OPTIONS (epsilon = 0.99, title = 'Births by week and weight',
                answer_units = 'births') AS
            SELECT week, plurality, count(*) AS births FROM births GROUP BY CUBE (week, plurality)""",
    ),
    RegistryPlan(
        name="CTDC Global Victim-Perpetrator Synthetic Dataset",
        file="microsoft_ctdc_victim_perpertartor_synthetic_dataset_2023",
        unit="a victim, with all perpetrators",
        price="epsilon = 12, delta = 5.8e-6",
        released="margins of two columns each, and made-up records that fit them",
        left_out="Margins have one bound of rows for each victim, not a noisy percentile. "
        "Combinations that nobody has are shown in them.",
        tables="""
            CREATE TABLE relations AS SELECT 'victim ' || few(i, 1, 2500) AS victim,
                2005 + pick(few(i, 1, 2500), 2, 18) AS registered, ['woman', 'man', NULL][1 + few(i, 3, 3)] AS gender,
                pick(few(i, 1, 2500), 4, 4) = 0 AS minor, canary(i, ['Africa', 'Americas', 'Asia', 'Europe'][1 +
                few(i, 5, 4)]) AS region, ['stranger', 'friend', 'partner', 'family'][1 + few(i, 6, 4)] AS relationship
                FROM range(5000) AS r(i)""",
        policies="""
            CREATE PRIVACY POLICY ON relations (PRIVACY UNIT victim MAX ROWS 4,
                BUDGET (epsilon = 12, delta = 5.8e-6), DOMAIN registered RANGE 2005 TO 2023 STEP 6,
                DOMAIN gender IN ('woman', 'man') WITH NULL, DOMAIN minor BOOLEAN,
                DOMAIN region IN ('Africa', 'Americas', 'Asia', 'Europe'),
                DOMAIN relationship IN ('stranger', 'friend', 'partner', 'family'))""",
        plan="""
            CREATE PRIVATE VIEW relation_margins OPTIONS (epsilon = 12, delta = 5.8e-6,
                title = 'Victims and perpetrators', answer_units = 'relations') AS
            SELECT registered, gender, minor, region, relationship, count(*) AS relations FROM relations
            GROUP BY MARGINALS (2, registered, gender, minor, region, relationship);
            CREATE PRIVATE TABLE made_up_relations AS SAMPLE 5000 FROM private.relation_margins""",
    ),
    RegistryPlan(
        name="Synthetic data to test third-party solutions in financial services",
        file="sas_data_maker_vulnerable_persons",
        unit="a customer, with all accounts",
        price="epsilon = 5",
        released="made-up customers, and made-up accounts that refer to them",
        left_out="Transactions. The deployment makes them up without differential privacy.",
        tables="""
            CREATE TABLE customers AS SELECT i AS id, canary(i, 'Name ' || i) AS name,
                ['18-29', '30-49', '50-69', '70+'][1 + pick(i, 1, 4)] AS age, pick(i, 2, 9) = 0 AS vulnerable,
                ['rent', 'mortgage', 'owner', NULL][1 + few(i, 3, 4)] AS home FROM range(2500) AS r(i);
            ALTER TABLE customers ADD PRIMARY KEY (id);
            CREATE TABLE accounts AS SELECT 5 * i + j AS number, i AS customer,
                ['current', 'credit card'][1 + CAST(j > 0 AND pick(i, 4, 3) > 0 AS INTEGER)] AS kind,
                100 * tail(5 * i + j, 5) AS balance FROM range(2500) AS r(i), range(5) AS s(j)
                WHERE j <= few(i, 6, 5)""",
        policies="""
            CREATE PRIVACY POLICY ON customers (PRIVACY UNIT id MAX ROWS 1, BUDGET (epsilon = 5), EXPECT ROWS 2500,
                DOMAIN age IN ('18-29', '30-49', '50-69', '70+'), DOMAIN vulnerable BOOLEAN,
                DOMAIN home IN ('rent', 'mortgage', 'owner') WITH NULL);
            CREATE PRIVACY POLICY ON accounts (PRIVACY UNIT customer REFERENCES customers.id MAX ROWS 5,
                EXPECT ROWS 5000, DOMAIN kind IN ('current', 'credit card'),
                DOMAIN balance RANGE 0 TO 2000 STEP 500 WITH EDGES)""",
        plan="""
            CREATE PRIVATE TABLE made_up_customers OPTIONS (epsilon = 2.5, key = id) AS
            SELECT age, vulnerable, home, n FROM customers
            JOIN (SELECT id AS of, count(number) AS n FROM customers LEFT JOIN accounts ON id = customer GROUP BY id)
            ON id = of WORKLOAD MARGINALS (2);
            CREATE PRIVATE TABLE made_up_accounts OPTIONS (epsilon = 2.5) AS
            SELECT age, vulnerable, kind, balance FROM customers JOIN accounts ON id = customer
            FOR EACH ROW OF made_up_customers (customer = id) TIMES n
            WORKLOAD GROUPING SETS ((age, kind), (vulnerable, kind), (kind, balance))""",
    ),
    RegistryPlan(
        name="Disclosure Avoidance System for Demographic and Housing Data",
        file="census_demographic_and_housing",
        unit="a person, and a housing unit",
        price="rho = 4.96 for persons, and 7.7 for housing units",
        released="persons by place, sex and age, with the true totals of states, and housing units by place and tenure",
        left_out="Neighbours are added or removed, not changed. "
        "Whole counts that agree are made by least squares, not by TopDown.",
        tables="""
            CREATE TABLE persons AS SELECT canary(i, 'name ' || i) AS name,
                ['WV Kent', 'WV Lee', 'VA Bath', NULL][1 + few(i, 1, 4)] AS county,
                ['F', 'M'][1 + pick(i, 2, 2)] AS sex, pick(i, 3, 60) + few(i, 4, 55) AS age,
                ['white', 'black', 'asian', 'other'][1 + few(i, 5, 4)] AS race FROM range(8000) AS r(i);
            CREATE TABLE state_totals AS SELECT left(county, 2) AS state, count(*) AS persons FROM persons
                WHERE county IS NOT NULL GROUP BY ALL;
            CREATE TABLE housing AS SELECT ['WV Kent', 'WV Lee', 'VA Bath'][1 + few(i, 1, 3)] AS county,
                ['owned', 'mortgage', 'rented', 'vacant'][1 + pick(i, 2, 4)] AS tenure FROM range(3000) AS r(i)""",
        policies="""
            DECLARE PUBLIC TABLE state_totals;
            CREATE PRIVACY POLICY ON persons (PRIVACY UNIT ROW, BUDGET (rho = 4.96),
                DOMAIN county IN ('WV Kent', 'WV Lee', 'VA Bath'), DOMAIN sex IN ('F', 'M'),
                DOMAIN age RANGE 0 TO 120 STEP 10, DOMAIN race IN ('white', 'black', 'asian', 'other'));
            CREATE PRIVACY POLICY ON housing (PRIVACY UNIT ROW, BUDGET (rho = 7.7),
                DOMAIN county IN ('WV Kent', 'WV Lee', 'VA Bath'),
                DOMAIN tenure IN ('owned', 'mortgage', 'rented', 'vacant'))
            """,
        plan="""
            CREATE PRIVATE VIEW sex_by_age OPTIONS (rho = 4.96, integer = TRUE, nonnegative = TRUE,
                public_totals = 'state_totals', title = 'Persons by county, sex, age and race',
                answer_units = 'persons') AS
            SELECT left(county, 2) AS state, county, sex, age, race, count(*) AS persons FROM persons
            GROUP BY GROUPING SETS ((left(county, 2)), (county), (county, race), (county, sex, age),
                (left(county, 2), county, sex, age, race));
            CREATE PRIVATE VIEW tenure OPTIONS (rho = 7.7, integer = TRUE, nonnegative = TRUE,
                title = 'Housing units by tenure', answer_units = 'units') AS
            SELECT county, tenure, count(*) AS units FROM housing GROUP BY ROLLUP (county, tenure)""",
        units=2,
    ),
    RegistryPlan(
        name="Disclosure Avoidance System for Supplemental Demographic and Housing Characteristics File",
        file="census_supplemental_demographic_and_housing",
        unit="a household, with its persons",
        price="rho = 2.515",
        released="persons and households by household type and tenure, joined, and sizes of households",
        left_out="Persons and households have one unit here. The deployment has a unit for each kind of table.",
        tables="""
            CREATE TABLE households AS SELECT i AS household, canary(i, ['Ohio', 'Utah', 'Iowa'][1 + few(i, 1, 3)])
                AS state, ['owned', 'rented', NULL][1 + few(i, 2, 3)] AS tenure,
                ['couple', 'alone', 'family', 'other'][1 + pick(i, 3, 4)] AS kind FROM range(2000) AS r(i);
            ALTER TABLE households ADD PRIMARY KEY (household);
            CREATE TABLE members AS SELECT i AS household, pick(7 * i + j, 4, 90) AS age
                FROM range(2000) AS r(i), range(9) AS s(j) WHERE j <= few(i, 5, 9)""",
        policies="""
            CREATE PRIVACY POLICY ON households (PRIVACY UNIT household MAX ROWS 1, BUDGET (rho = 2.515),
                DOMAIN state IN ('Ohio', 'Utah', 'Iowa'), DOMAIN tenure IN ('owned', 'rented') WITH NULL,
                DOMAIN kind IN ('couple', 'alone', 'family', 'other'));
            CREATE PRIVACY POLICY ON members (PRIVACY UNIT household REFERENCES households.household MAX ROWS 7)""",
        plan="""
            CREATE PRIVATE VIEW persons_in OPTIONS (rho = 1.5, title = 'Persons by type of their household',
                answer_units = ('persons', 'persons')) AS
            SELECT state, kind, count(*) AS persons, count(*) FILTER (WHERE age < 18) AS minors
            FROM households JOIN members ON households.household = members.household GROUP BY state, kind;
            CREATE PRIVATE VIEW household_types OPTIONS (rho = 0.5, title = 'Households by type and tenure',
                answer_units = 'households') AS
            SELECT state, kind, tenure, count(*) AS households FROM households GROUP BY CUBE (state, kind, tenure);
            CREATE PRIVATE VIEW sizes OPTIONS (rho = 0.515, title = 'Sizes of households',
                answer_units = 'households') AS
            SELECT size, count(*) AS households
            FROM (SELECT household, count(*) AS size FROM members GROUP BY household) GROUP BY size""",
    ),
    RegistryPlan(
        name="Census County Business Patterns",
        file="county_business_patterns",
        unit="an establishment",
        price="rho = 12.058",
        released="establishments, employees and payroll by county and industry",
        left_out="Large establishments are clamped. The deployment protects them less (per-record privacy).",
        tables="""
            CREATE TABLE establishments AS SELECT canary(i, 'Firm ' || i) AS firm,
                ['Kent', 'Lee', 'Wirt', 'Bath'][1 + few(i, 1, 4)] AS county,
                ['44-45', '62', '31-33', '72', NULL][1 + few(i, 2, 5)] AS industry,
                CAST(tail(i, 3) AS INTEGER) AS employees, CAST(40 * tail(i, 3) * (1 + pick(i, 4, 9) / 9)
                AS DECIMAL(12, 1)) AS payroll FROM range(5000) AS r(i)""",
        policies="""
            CREATE PRIVACY POLICY ON establishments (PRIVACY UNIT firm MAX ROWS 1, BUDGET (rho = 12.058),
                DOMAIN county IN ('Kent', 'Lee', 'Wirt', 'Bath'), DOMAIN industry IN ('31-33', '44-45', '62', '72')
                WITH NULL, CLAMP employees BETWEEN 0 AND 250, CLAMP payroll BETWEEN 0 AND 10000 STEP 1)""",
        plan="""
            CREATE PRIVATE VIEW business_patterns OPTIONS (rho = 12.058, title = 'Establishments by industry',
                answer_units = ('establishments', 'employees', 'thousand dollars')) AS
            SELECT county, industry, count(*) AS establishments, sum(employees) AS employees, sum(payroll) AS payroll
            FROM establishments GROUP BY CUBE (county, industry)""",
    ),
    RegistryPlan(
        name="Energy Differential Privacy for OhmConnect Virtual Power Plant Measurement",
        file="recurve_energy_dp",
        unit="a customer",
        price="epsilon = 4.72, delta = 5.06e-9",
        released="average load by hour, observed and predicted, and sums of the event",
        left_out="The bound of a value is public, not found by the sparse vector technique. "
        "The sample of customers gains nothing. Saved energy is computed afterwards.",
        tables="""
            CREATE TABLE meters AS SELECT canary(i, 'customer ' || i // 24) AS customer, i % 24 AS hour,
                CASE WHEN pick(i, 1, 40) > 0 THEN 0.4 * tail(i // 24, 2) * (1 + sin(i % 24 / 4) / 2) END AS observed,
                0.42 * tail(i // 24, 2) * (1 + sin(i % 24 / 4) / 2) AS predicted FROM range(7200) AS r(i)""",
        policies="""
            CREATE PRIVACY POLICY ON meters (PRIVACY UNIT customer MAX ROWS 24,
                BUDGET (epsilon = 4.72, delta = 5.06e-9), DOMAIN hour RANGE 0 TO 24 STEP 1,
                CLAMP observed BETWEEN 0 AND 8 STEP 0.01, CLAMP predicted BETWEEN 0 AND 8 STEP 0.01)""",
        plan="""
            CREATE PRIVATE VIEW load_shape OPTIONS (epsilon = 4, delta = 5.06e-9, title = 'Average load by hour',
                answer_units = ('kWh', 'kWh')) AS
            SELECT hour, avg(observed, contribution_bounds_per_group => (0, 8)) AS observed,
                avg(predicted, contribution_bounds_per_group => (0, 8)) AS predicted FROM meters GROUP BY hour;
            CREATE PRIVATE VIEW event_load OPTIONS (epsilon = 0.4, max_rows_contributed = 3,
                title = 'Load of the event, 18 to 21 h', answer_units = ('kWh', 'kWh')) AS
            SELECT sum(observed) AS observed, sum(predicted) AS predicted FROM meters WHERE hour BETWEEN 18 AND 20""",
    ),
    RegistryPlan(
        name="LinkedIn Hiring Reports",
        file="linkedin_hiring_reports",
        unit="a hire, in one month",
        price="epsilon = 4.8, delta = 4e-10 a month",
        released="the top employers, of any names, and hires by industry",
        left_out="Employers are selected by a threshold, not by the Gumbel mechanism.",
        tables="""
            CREATE TABLE hires AS SELECT i AS hire, DATE '2020-09-01' + pick(i, 1, 30) AS hired,
                canary(i, ['Acme, Inc.', 'O''Hara & Sons', '"Quoted" Ltd', 'Müller GmbH', 'Zed', 'Bolt', 'Nil'][1 +
                few(i, 2, 7)] || CASE WHEN pick(i, 3, 9) = 0 THEN ' ' || pick(i, 4, 300) ELSE '' END) AS employer,
                ['software', 'health', 'retail', NULL][1 + few(i, 5, 4)] AS industry FROM range(5000) AS r(i)""",
        policies="""
            CREATE PRIVACY POLICY ON hires (PRIVACY UNIT hire PER MONTH OF hired MAX ROWS 1,
                BUDGET (epsilon = 4.8, delta = 4e-10, delta_keys = 2e-10) PER MONTH, EXPECT ROWS 5000,
                DOMAIN industry IN ('software', 'health', 'retail') WITH NULL)""",
        plan="""
            CREATE PRIVATE VIEW top_employers OPTIONS (epsilon = 1.2, delta = 1e-10, title = 'Top employers',
                group_selection_strategy = GAUSSIAN_THRESHOLD, answer_units = 'hires') AS
            SELECT employer, count(*) AS hires FROM hires
            WHERE hired >= DATE '2020-09-01' AND hired < DATE '2020-10-01'
            GROUP BY employer ORDER BY hires DESC LIMIT 5;
            CREATE PRIVATE VIEW by_industry OPTIONS (epsilon = 1.2, delta = 1e-10, title = 'Hires by industry',
                answer_units = 'hires') AS
            SELECT industry, count(*) AS hires FROM hires
            WHERE hired >= DATE '2020-09-01' AND hired < DATE '2020-10-01' GROUP BY industry""",
    ),
    RegistryPlan(
        name="Post-Secondary Employment Outcomes",
        file="employment_outcomes",
        unit="a graduate",
        price="not in the registry; epsilon = 1.5 here",
        released="quartiles of earnings by degree and field, and graduates",
        left_out="Quantiles are chosen by the exponential mechanism or a tree, not from a histogram of bins.",
        tables="""
            CREATE TABLE graduates AS SELECT canary(i, 'graduate ' || i) AS graduate,
                ['bachelor', 'master', 'doctor'][1 + few(i, 1, 3)] AS degree,
                ['health', 'arts', 'science', NULL][1 + pick(i, 2, 4)] AS field, CASE WHEN pick(i, 3, 12) > 0
                THEN 20000 * sqrt(tail(i, 4)) + pick(i, 5, 9000) END AS earnings FROM range(6000) AS r(i)""",
        policies="""
            CREATE PRIVACY POLICY ON graduates (PRIVACY UNIT graduate MAX ROWS 1, BUDGET (epsilon = 1.5),
                DOMAIN degree IN ('bachelor', 'master', 'doctor'), DOMAIN field IN ('health', 'arts', 'science'),
                CLAMP earnings BETWEEN 0 AND 200000 STEP 500)""",
        plan="""
            CREATE PRIVATE VIEW earnings OPTIONS (epsilon = 1, title = 'Earnings after one year',
                answer_units = ('dollars', 'dollars', 'dollars')) AS
            SELECT degree, field, quantile_cont(earnings, 0.25) AS p25, median(earnings) AS p50,
                quantile_cont(earnings, 0.75) AS p75 FROM graduates GROUP BY degree, field;
            CREATE PRIVATE VIEW graduates_counted OPTIONS (epsilon = 0.5, title = 'Graduates',
                answer_units = ('graduates', 'graduates')) AS
            SELECT degree, field, count(*) AS graduates, count(earnings) AS with_earnings FROM graduates
            GROUP BY CUBE (degree, field)""",
    ),
)
