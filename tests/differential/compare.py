"""Makes two answers comparable, and lists what differs."""

import json
import re

# What each server makes up. That it is there, and of its kind, is compared; its value is not.
MADE_UP = {"client", "session", "node", "version", "epoch", "uid", "name", "time", "metrics", "ttl", "reason"}
CLIENT_ID = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
SHORT = 100


# Left out by the original while it is 0, for its first second.
LEFT_OUT = {"uptime"}


def normalised(value):
    if isinstance(value, dict):
        value = {key: one for key, one in value.items() if key not in LEFT_OUT}
        return {"<id>" if CLIENT_ID.match(str(key)) else str(key): normalised_field(key, one) for key, one in value.items()}
    if isinstance(value, list):
        return [normalised(one) for one in value]
    return value


def normalised_field(key, value):
    is_made_up = key in MADE_UP and isinstance(value, (str, int)) and value
    return f"<{key}>" if is_made_up else normalised(value)


def short(value):
    if value is ABSENT:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text if len(text) <= SHORT else text[:SHORT] + "..."


ABSENT = object()


def differences(original, ours, path=""):
    """What differs: (where, what the original says, what Myriad says)."""
    if isinstance(original, dict) and isinstance(ours, dict):
        for key in sorted({*original, *ours}, key=str):
            yield from differences(original.get(key, ABSENT), ours.get(key, ABSENT), f"{path}.{key}" if path else str(key))
    elif isinstance(original, list) and isinstance(ours, list) and len(original) == len(ours):
        for index, (one, other) in enumerate(zip(original, ours)):
            yield from differences(one, other, f"{path}.{index}")
    # 1 and true are not the same.
    elif type(original) is not type(ours) or original != ours:
        yield path, short(original), short(ours)
