"""Dollars: unknown is never zero."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from core import events as ev
from core.money import break_even, costs, find_price, price, price_table, run_cost
from tests.core.scene import Scene

TPU = {"kind": "tpu-v5e-4", "chips": 4}
PRICES = {"reference": "gcp-g2-standard-8-l4", "target": "tpu-v5e"}
WHEN = datetime(2026, 11, 1, tzinfo=timezone.utc)


def used(usd: float | None, **more: object) -> ev.AgentUsed:
    return ev.AgentUsed("claude-opus-4-5", usd=usd, **more)  # type: ignore[arg-type]


# --- the agent -------------------------------------------------------------------------------


def test_a_scripted_agent_costs_nothing_and_says_so() -> None:
    scene = Scene()
    scene.add(ev.AgentStarted("scripted"))
    amount = costs(scene.state).agent
    assert (amount.usd, amount.text) == (0.0, "no agent cost")


def test_an_agent_that_reports_nothing_is_unknown() -> None:
    scene = Scene()
    scene.add(ev.AgentStarted("anthropic"))
    amount = costs(scene.state).agent
    assert (amount.usd, amount.text) == (None, "unknown")


def test_requests_add_up_and_one_without_a_price_makes_it_at_least() -> None:
    scene = Scene()
    scene.add(ev.AgentStarted("anthropic"))
    scene.add(used(1.25, reported_usd=1.3))
    scene.add(used(2.0, reported_usd=2.1))
    both = costs(scene.state)
    assert both.agent.text == "$3.25"
    assert both.agent_reported.usd == pytest.approx(3.4)
    assert both.requests == 2
    scene.add(used(None))
    amount = costs(scene.state).agent
    assert (amount.usd, amount.text) == (None, "at least $3.25")
    assert "1 of 3 requests" in amount.note


def test_a_request_is_priced_by_class_of_token() -> None:
    usage = ev.AgentUsed(
        "claude-sonnet-4-5",
        input_tokens=1_000_000,
        cache_write_5m_tokens=100_000,
        cache_write_1h_tokens=100_000,
        cache_read_tokens=1_000_000,
        output_tokens=100_000,
    )
    parts = [
        ev.AgentUsed("m", **{name: getattr(usage, name)})
        for name in (
            "input_tokens",
            "cache_write_5m_tokens",
            "cache_write_1h_tokens",
            "cache_read_tokens",
            "output_tokens",
        )
    ]
    model = "claude-haiku-4-5"
    single = [price(part, model, WHEN)[0] for part in parts]
    # Haiku 4.5: 1 $ input, 1.25 $ and 2 $ cache writes, 0.10 $ cache read, 5 $ output a million.
    assert single == pytest.approx([1.0, 0.125, 0.2, 0.1, 0.5])
    whole, table = price(usage, model + "[1m]", WHEN)
    assert whole == pytest.approx(sum(s or 0 for s in single))
    assert table.startswith("genai-prices ")


def test_a_model_without_a_price_is_unknown_not_free() -> None:
    usd, table = price(ev.AgentUsed("x", input_tokens=5), "claude-unheard-of-99", WHEN)
    assert usd is None
    assert table.startswith("genai-prices ")


# --- hardware --------------------------------------------------------------------------------


def test_the_price_table_is_dated_and_sourced() -> None:
    assert price_table()["tpu-v5e"].usd_per_hour == 1.2
    for row in price_table().values():
        assert row.as_of and row.source and row.region
        assert row.scope in ("chip", "instance", "instance/8")
        assert row.usd_per_hour > 0
    shipped = Path(__file__).parents[2] / "core" / "prices.json"
    assert len(price_table()) == len(json.loads(shipped.read_text())["rows"])


def test_chips_are_counted_for_a_chip_price_and_not_for_an_instance() -> None:
    scene = Scene(target=TPU, prices=PRICES)
    scene.run("reference", seconds=3600)
    scene.snapshot("t1").run("attempt", seconds=1800)
    state = scene.state
    assert run_cost(state, state.runs["r1"]).usd == pytest.approx(0.8536)
    assert run_cost(state, state.runs["r2"]).usd == pytest.approx(4 * 0.6)


def test_one_run_and_all_runs_are_two_figures() -> None:
    scene = Scene(target=TPU, prices=PRICES)
    scene.run("reference", seconds=3600)
    scene.snapshot("t1").run("attempt", seconds=900, exit_code=1)
    scene.run("attempt", seconds=1800)
    result = costs(scene.state)
    assert result.target_run.usd == pytest.approx(2.4)
    assert result.reference_run.usd == pytest.approx(0.8536)
    assert result.hardware.usd == pytest.approx(0.8536 + 1.2 + 2.4)
    assert set(result.runs) == {"r1", "r2", "r3"}


def test_without_a_price_hardware_is_unknown() -> None:
    scene = Scene()
    scene.run("reference")
    result = costs(scene.state)
    assert (result.hardware.usd, result.hardware.text) == (None, "unknown")
    assert "No price is set for the reference" in result.reference_run.note


def test_known_and_unknown_runs_make_at_least() -> None:
    scene = Scene(prices={"reference": "gcp-g2-standard-8-l4"})
    scene.run("reference", seconds=3600)
    scene.snapshot("t1").run("attempt")
    assert costs(scene.state).hardware.text == "at least $0.85"


@pytest.mark.parametrize(
    ("prices", "usd", "why"),
    [
        ({"target": "tpu-v5e"}, 1.2, ""),
        ({"target": "tpu-v5e", "override": {"tpu-v5e": 0.84}}, 0.84, ""),
        ({"target": "ours", "override": {"ours": {"usd_per_hour": 2, "scope": "chip"}}}, 2.0, ""),
        ({"target": "ours"}, None, "There is no price 'ours'"),
        ({"target": "ours", "override": {"ours": 2}}, None, "needs usd_per_hour"),
        ({"target": "tpu-v5e", "override": {"tpu-v5e": -1}}, None, "needs usd_per_hour"),
        ({"target": "tpu-v5e", "override": {"tpu-v5e": "1"}}, None, "needs usd_per_hour"),
        ({}, None, "No price is set"),
    ],
)
def test_every_row_can_be_overridden(
    prices: dict[str, object], usd: float | None, why: str
) -> None:
    found, reason = find_price(Scene(target=TPU, prices=prices).state, "target")
    assert (found.usd_per_hour if found else None) == usd
    assert reason.startswith(why) or why in reason


def test_the_host_is_never_charged_as_a_tpu() -> None:
    found, reason = find_price(Scene(prices=PRICES).state, "target")
    assert found is None
    assert "not on a TPU" in reason


def test_a_cut_off_run_has_no_known_cost() -> None:
    scene = Scene(target=TPU, prices=PRICES).snapshot("t1")
    scene.run("attempt", exit_code=None, reason="cut off")
    assert costs(scene.state).hardware.usd is None


# --- the operator and break-even -------------------------------------------------------------


def test_the_operators_time_costs_what_the_rate_says() -> None:
    scene = Scene(operator={"rate_usd_per_hour": 60})
    scene.add(ev.OperatorAttached("c1"))
    scene.wait(150).add(ev.OperatorHeartbeat("c1"))
    scene.wait(600).add(ev.MarkerPlaced("later"))
    assert costs(scene.state).operator.usd == pytest.approx(3.0)  # 150 s and a tail of 30 s
    assert costs(Scene().state).operator.usd is None


def test_break_even_counts_what_the_migration_has_cost() -> None:
    scene = Scene(target={"kind": "tpu-v5e-1"}, prices=PRICES)
    scene.add(ev.AgentStarted("anthropic"))
    scene.add(used(6.89))
    scene.run("reference", seconds=3600)
    result = break_even(scene.state, 0.51, 0.24)
    assert result.spent_usd == pytest.approx(6.89 + 0.8536)
    assert result.runs == 29
    assert result.text.startswith("29 runs: ")
    assert break_even(scene.state, 0.24, 0.51).runs is None
    assert break_even(scene.state, 0.24, 0.51).text.startswith("Never")
    scene.add(used(None))
    assert break_even(scene.state, 0.51, 0.24).text.startswith("Unknown")
