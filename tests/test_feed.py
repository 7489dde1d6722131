"""The feed tells each verdict, comparison and champion once, and nothing from before it was made."""

from __future__ import annotations

from pathlib import Path

from swarm.cli.feed import Feed, Kind
from tests.support import Swarm, make_root


def test_everything_that_happens_is_told_once(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path)) as swarm:
        swarm.start("rope")
        feed = Feed(swarm.hub, swarm.ledger, ["rope"])
        told = []
        while not swarm.is_quiet():
            swarm.round()
            told += feed.take()
        assert feed.take() == []
        verdicts = [news for news in told if news.kind is Kind.VERDICT]
        champions = [news for news in told if news.kind is Kind.CHAMPION]
        comparisons = [news for news in told if news.kind is Kind.COMPARISON]
        assert len(verdicts) == feed.measured == len(swarm.ledger.verdicts("rope"))
        assert len(comparisons) == len(swarm.ledger.comparisons("rope"))
        assert verdicts[0].what == "Seed rope" and verdicts[0].worker == ""
        assert {news.worker for news in verdicts[1:]} == {"w1"}
        assert any("BLOCK 1 -> " in news.what for news in verdicts)
        assert champions[-1].result.startswith(f"champion {swarm.hub.champions()['rope'][:10]}")
        assert champions[-1].what.startswith("Merge: ")


def test_what_was_on_record_before_is_no_news(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path)) as swarm:
        swarm.start("rope")
        swarm.until(swarm.is_quiet)
        assert Feed(swarm.hub, swarm.ledger, ["rope"]).take() == []


def test_problems_that_do_not_take_part_are_not_told(tmp_path: Path) -> None:
    with Swarm(make_root(tmp_path)) as swarm:
        swarm.start("rope", "swiglu")
        feed = Feed(swarm.hub, swarm.ledger, ["swiglu"])
        swarm.until(
            lambda: len(swarm.ledger.verdicts("rope")) > 0 and len(swarm.ledger.verdicts("swiglu")) > 0
        )
        assert {news.problem for news in feed.take()} == {"swiglu"}
