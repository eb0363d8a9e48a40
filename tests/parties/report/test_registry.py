"""The fields of the registry of deployments: complete, and equal to the report's figures."""

import pytest
import yaml

from parties.report.page import registry_entry
from radofed.cli.output import json_ready
from tests.parties.report.report_world import ada_at, answer, report_of, statistic

pytestmark = pytest.mark.usefixtures("small_comb")


@pytest.fixture
def report(world, tmp_path):
    ada = ada_at(world, tmp_path)
    answer(ada, statistic(world))
    return report_of(ada)


def test_it_has_the_fields_of_the_highest_tier(report):
    entry = registry_entry(report)
    assert entry["tier"] == 3
    fields = entry["deployment"]
    for group, names in {
        "product": ("name", "data_curators", "intended_use", "data_product_type", "publication_date"),
        "dp_flavor": ("name", "input_metric", "bound_on_input_distance", "output_measure", "data_domain"),
        "privacy_loss": ("privacy_unit", "privacy_unit_description", "privacy_parameters"),
        "model": ("model_name", "actors", "release_type", "data_source_type", "access_type", "analysts_collusion"),
        "accounting": ("post_processing", "composition", "budget_refresh"),
        "implementation": ("pre_processing_eda_hyperparameter_tuning", "mechanisms", "justification"),
    }.items():
        assert set(names) <= set(fields[group]), group
    assert fields["dp_flavor"]["unprotected_quantities"]


def test_its_figures_are_the_report_s(report):
    fields = registry_entry(report)["deployment"]
    assert fields["privacy_loss"]["privacy_parameters"] == {"epsilon": 3.0, "delta": 1e-5}
    (record,) = fields["privacy_loss"]["scopes"]
    assert (record["spent_epsilon"], record["releases_without_a_bound"]) == (report.record.spent, 0)
    assert fields["accounting"]["attempts_charged_in_the_period"] == 1


def test_counts_of_one_have_no_plural(report):
    said = "1 query was shown to ada in the period, 1 attempt was charged"
    assert registry_entry(report)["deployment"]["product"]["description"] == said


def test_every_actor_has_its_trust(report):
    actors = {actor["name"]: actor for actor in registry_entry(report)["deployment"]["model"]["actors"]}
    assert set(actors) == {"ada", "bo", "cy", "hub", "lea"}
    assert all(actor["trust"] and actor["policy_of_this_party"] for actor in actors.values())
    assert actors["hub"]["fingerprint"] is None


def test_yaml_says_the_same_as_json(report):
    entry = json_ready(registry_entry(report))
    assert yaml.safe_load(yaml.safe_dump(entry, sort_keys=False, allow_unicode=True)) == entry


def test_a_limit_of_each_day_is_no_refresh(world, tmp_path):
    daily = {"epsilon": "50", "delta": "1e-5", "unbounded_queries": 0}
    ada = ada_at(world, tmp_path, limits=daily)
    text = (tmp_path / "policy.toml").read_text()
    (tmp_path / "policy.toml").write_text(f'{text}\n[limits.per_day]\nepsilon = "1"\ndelta = "1e-5"\n')
    words = registry_entry(report_of(ada))["deployment"]["accounting"]["budget_refresh"]
    assert words.startswith("None")
    assert "24 hours" in words
