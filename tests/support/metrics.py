"""The page of `/metrics`, as the official parser reads it."""

from prometheus_client.parser import text_string_to_metric_families


def samples(page: bytes) -> dict[str, float]:
    """The samples of a page as the official parser reads them, each under its name with its labels in order."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found
