"""The table of targets: the figure of each row, and whether it reaches its target."""

import math
import operator
import statistics
from dataclasses import dataclass

import accuracy
import quantity
import secured

# Of the rate that clients publish at: what must come back as answers, and as deliveries.
ACKS_SHARE = 0.99
DELIVERIES_SHARE = 0.99


@dataclass(frozen=True)
class Row:
    name: str
    scenario: str
    # Its title in the table of targets.
    title: str
    # The target as text.
    target: str
    # Computes a list of values, one a round, from its scenario's runs. None for a round that does not count.
    values: object
    # The largest value that reaches the target; the smallest with `at_least`.
    bound: float
    at_least: bool = False
    # A value as a person reads it.
    shown: object = "{:.2f}".format
    # A value between `bound` and this is tolerated, but does not reach the target.
    tolerated: float = None

    def outcome(self, runs):
        values = [value for value in self.values(runs) if value is not None]
        if not values:
            return None
        median = statistics.median(values)
        return Outcome(self, median, min(values), max(values), len(values))


@dataclass(frozen=True)
class Outcome:
    row: Row
    median: float
    low: float
    high: float
    rounds: int

    @property
    def reached(self):
        if (self.median >= self.row.bound) if self.row.at_least else (self.median <= self.row.bound):
            return "yes"
        if self.row.tolerated is not None and self.median <= self.row.tolerated:
            return "within the most allowed"
        return "no"

    @property
    def measured(self):
        if self.rounds == 1:
            return self._shown(self.median)
        return f"{self._shown(self.median)} ({self._shown(self.low)} to {self._shown(self.high)}, {self.rounds} rounds)"

    def _shown(self, value):
        # What did not come took forever.
        return "never" if value == math.inf else self.row.shown(value)


def of_kind(runs, kind):
    return [run for run in runs if run["kind"] == kind]


def whole(run):
    """Whether all clients connected and every push reached all of them. Other runs did less work."""
    wanted = run["report"]["settings"]["connections"]
    if run["report"]["setup"]["connected"] < wanted:
        return False
    return all(push["received"] >= wanted for push in run.get("pushes", []))


def figure(kind, value):
    """The value of each run of this kind."""
    return lambda runs: [value(run) if whole(run) else None for run in of_kind(runs, kind)]


def every(kind, value):
    """The same for a figure that asks whether all clients got everything. A run in which one is missing counts too."""
    return lambda runs: [value(run) for run in of_kind(runs, kind)]


def fails_without_all(run):
    """Whether the rows of this run take a client that is missing as a failure: they use `every`."""
    return "missed_each" in run or bool(run["report"].get("client_publish"))


def ratio(kind, value, against="baseline"):
    """For each round, the value of this kind over that of the baseline, or of another kind, in the same round."""
    return compared(kind, value, against, operator.truediv)


def difference(kind, value, against):
    """For each round, the value of this kind less that of another kind in the same round."""
    return compared(kind, value, against, operator.sub)


def compared(kind, value, against, compare):
    def values(runs):
        baselines = {run["round"]: run for run in of_kind(runs, against)}
        found = []
        for run in of_kind(runs, kind):
            baseline = baselines.get(run["round"])
            comparable = baseline is not None and whole(run) and whole(baseline)
            found.append(compare(value(run), value(baseline)) if comparable else None)
        return found

    return values


def last_ms(run):
    """Publish to the last client: the median of the run's pushes."""
    return statistics.median(push["last_ms"] for push in run["pushes"])


def cpu_per_delivery_us(run):
    return run["server_cpu_s"] * 1e6 / sum(push["received"] for push in run["pushes"])


def both_cpu_us(run):
    """What a message takes of the processors at the generator and at the server, in microseconds; none if a report lacks one."""
    cpu = run["report"].get("cpu") or {}
    both = cpu.get("generator_cpu_us_per_message"), cpu.get("server_cpu_us_per_message")
    return both if all(both) else None


def generator_over_server(run):
    """Generator CPU for each message that it received, over server CPU for each that it sent."""
    both = both_cpu_us(run)
    return both[0] / both[1] if both else None


def bytes_per_delivery(run):
    return run["sent_bytes"] / sum(push["received"] for push in run["pushes"])


def user_bytes(run):
    return run["user_bytes_per_connection"]


def setup_rate(run):
    return run["report"]["setup"]["rate_per_s"]


def setup_share_of_floor(run):
    """The setup rate over the floor of connecting, which was measured just before."""
    return setup_rate(run) / run["connect_floor_per_s"]


def echoes_against_plain(run):
    """Messages that came back, over those of the plain program just before; none if it was not run."""
    plain = run.get("plain_echoes_per_s")
    return echo_rate(run) / plain if plain else None


def setup_share_of_handshakes(run):
    """The setup rate over that of handshakes in memory, which was measured just before."""
    return setup_rate(run) / run["handshakes_per_s"]


def push_p99_ms(run):
    """The median, over the pushes of `stormy`, of the time from publish to 99% of the deliveries."""
    return statistics.median(push["p99_ms"] for push in stormy(run))


def share_that_came(run):
    """Of the clients of the storm, those that got in."""
    return run["storm"]["connected"] / run["storm"]["connections_wanted"]


def stormy(run):
    """The pushes during the storm. Of a run without one, all pushes from the same place on."""
    first = secured.STORM_BEGINS_AFTER
    length = math.ceil(run["storm"]["elapsed_s"]) if "storm" in run else secured.STORM_PUSHES
    return run["pushes"][first : first + max(length, 1)]


def setup_seconds(run):
    return run["report"]["setup"]["elapsed_s"]


def missed(run):
    """The number of gaps and duplicates, and of expected deliveries that did not happen."""
    messages = run["report"]["messages"]
    short = sum(push["expected"] - push["received"] for push in run["report"]["pushes"])
    return messages["gaps"] + messages["duplicates"] + short


def lost(run):
    """The same, and the connections that ended."""
    return missed(run) + run["report"]["churn"]["lost"]


def api_rate(run):
    return run["api"]["publications_per_s"]


def asked_rate(run):
    """The setup rate; 0 if a client is in about whom the application was not asked."""
    return setup_rate(run) if run["application"]["calls"] >= run["report"]["setup"]["connected"] else 0


def peak_growth(run):
    """Bytes of resident memory while the clients connected, more than before."""
    return run["application"]["rss_bytes_peak"] - run["application"]["rss_bytes_before"]


def crowd_bytes(run):
    return run["report"]["crowd"]["user_bytes_per_client"]


def room_p99_ms(run):
    """Due to delivered, 99% of all deliveries; none if some did not come."""
    fanout = run["report"]["fanout"]
    return fanout["overall"]["p99_ms"] if fanout["reach"] == 1 else math.inf


def all_delivered(run):
    """Whether clients published all that was due, and every member of a room got it, once and in order."""
    load, session = run["report"]["client_publish"], run["report"]["session"]
    failed = load["unsent"] + load["lost"] + load["errors"]
    disordered = session["gaps"] + session["duplicates"] + session["overtaken"]
    # The crowd does not know how many to expect if a client was missing or was lost.
    expected = load["delivery"]["expected"] or math.inf
    return not failed and not disordered and load["delivery"]["received"] == expected


def delivery_p99_ms(run):
    """Due to delivered, 99% of all publications of clients; never if some did not come."""
    return run["report"]["client_publish"]["delivery"]["delivery_ms"]["p99"] if all_delivered(run) else math.inf


def deliveries_per_s(run):
    return run["report"]["client_publish"]["delivery"]["received_per_s"]


def chat(run):
    """The flow of a scenario that members send to their group."""
    return next(flow for flow in run["report"]["flows"] if flow["name"] == "chat-ws")


def chat_p99_ms(run):
    """Due to delivered, 99% of all deliveries; never if one was missing, repeated or out of order, or a message was not sent."""
    flow = chat(run)
    faults = sum(flow[fault] for fault in ("missing", "duplicated", "out_of_order", "unexpected", "late", "unsent"))
    if faults or run["report"]["errors"] or run["report"]["churn"]["lost"]:
        return math.inf
    return flow["since_due_ms"]["p99"]


def chat_rate(run):
    return chat(run)["received_per_s"]


def echo_rate(run):
    """Answers a second; 0 if a message was lost or came back changed. What was not sent is missing in the rate."""
    echo = run["report"]["echo"]
    return 0 if echo["lost"] or echo["errors"] else echo["received_per_s"]


def accuracy_of(percentile):
    """For each run, how far the reported percentile is from what the server knows, as a multiple of what is allowed."""

    def of(run):
        reported_ms = run["report"]["flows"][0]["since_sent_ms"][percentile]
        return accuracy.within(reported_ms, run["known"]["held_ms"][percentile])

    return lambda runs: [of(run) for run in runs]


def acks_keep_up(run):
    """Whether 99% of the rate came back as answers, and nothing was held back until the end."""
    load = run["report"]["client_publish"]
    return whole(run) and load["unsent"] == 0 and load["received_per_s"] >= ACKS_SHARE * load["rate_per_s"]


def ack_rates(runs):
    """For each round, the highest rate that the answers kept up with; 0 if there is none."""
    rounds = {run["round"]: [0] for run in runs}
    for run in runs:
        if acks_keep_up(run):
            rounds[run["round"]].append(run["report"]["client_publish"]["rate_per_s"])
    return [max(rates) for rates in rounds.values()]


def all_recovered(run):
    """Whether every client recovered once, and got all that it had missed and nothing else."""
    session, clients = run["report"]["session"], run["report"]["settings"]["connections"]
    found = session["recovered"], session["unrecovered"], session["recovered_publications"]
    return found == (clients, 0, clients * run["missed_each"])


def recovery_seconds(run):
    """Until the last client has its position again; never if one is not whole."""
    return setup_seconds(run) if all_recovered(run) else math.inf


def answer_p99_ms(question):
    """The 99th percentile of the answers that `ask.py` got to this question."""
    return lambda run: run["asked"][question]["round_trip_ms"]["p99"]


def user_bytes_of_all(run):
    return user_bytes(run) * run["report"]["setup"]["connected"]


def not_held(runs):
    """Clients that were never connected, or that lost their connection."""
    return [
        run["report"]["settings"]["connections"] - run["report"]["setup"]["connected"] + run["report"]["churn"]["lost"]
        for run in runs
    ]


def probe_p99_ms(run):
    """The probe's pushes to itself; never if one did not reach it, or another member of its channel."""
    fanout, others = run["probe"]["fanout"], run["others"]
    all_came = fanout["reach"] == 1 and others["received"] == others["expected"]
    return fanout["overall"]["p99_ms"] if all_came else math.inf


def poll_failures(runs):
    """Errors of any kind, and clients that were never connected or were lost."""
    errors = [sum(run["report"]["errors"].values()) for run in runs]
    return [more + absent for more, absent in zip(errors, not_held(runs), strict=True)]


def mistimed(run):
    """Polls that were not held as long as they were to be; all of them if none was answered."""
    held = run["report"]["http"]["held"]
    return held["early"] + held["late"] if run["report"]["http"]["timeouts"] else math.inf


def lateness_p99_ms(run):
    """The upper bound of 99% of the time-outs, as the server has timed them; never if there were none."""
    counted = run["lateness_s"]
    total = counted[-1][1]
    return next(bound for bound, count in counted if count >= 0.99 * total) * 1000 if total else math.inf


def poll_rate(run):
    """Answers in the best second; 0 if a client did not get all that was published, or had an error."""
    report = run["report"]
    failed = report["messages"]["missed"] + sum(report["errors"].values()) + report["churn"]["lost"]
    return 0 if failed or not whole(run) else report["http"]["peak_answers_per_s"] or 0


def byte_count(value):
    return f"{value:.0f} B"


def per_second(value):
    return f"{value:,.0f}/s"


def seconds(value):
    return f"{value:.1f} s"


def share(value):
    return f"{value:.1%}"


def milliseconds(value):
    return f"{value:.2f} ms"


def times(p50_ms, p99_ms):
    """Two quantiles as a person reads them. There is none of what did not happen."""
    if p50_ms is None or p99_ms is None:
        return "no times"
    return f"p50 {milliseconds(p50_ms)}, p99 {milliseconds(p99_ms)}"


def _memory(size, kind, title):
    return Row(
        f"memory-{size}-{kind}", f"broadcast-{size}",
        f"user space per idle `raw` connection with one subscription, at {title}, {kind}",
        "128 B (200 B at most)", figure(kind, user_bytes), 128, shown=byte_count, tolerated=200,
    )


def _generator_cpu(size, scenario, kind, load):
    return Row(
        f"generator-cpu-{size}-{kind}", scenario,
        f"{load}: generator CPU per received message, against server CPU per sent one, {kind}",
        "at most 1", figure(kind, generator_over_server), 1,
    )


ROWS = [
    _memory("100k", "io_uring", "100k"),
    _memory("100k", "epoll", "100k"),
    _memory("1m", "io_uring", "1M"),
    _memory("1m", "epoll", "1M"),
    Row("connect-100k-io_uring", "broadcast-100k", "connect + upgrade, 100k, both ends here, io_uring",
        "80,000/s", figure("io_uring", setup_rate), 80_000, at_least=True, shown=per_second),
    Row("connect-100k-epoll", "broadcast-100k", "connect + upgrade, 100k, both ends here, epoll",
        "80,000/s", figure("epoll", setup_rate), 80_000, at_least=True, shown=per_second),
    Row("broadcast-100k-io_uring", "broadcast-100k",
        "broadcast to 100k, publish to last client, against the baseline, io_uring",
        "at most 0.95", ratio("io_uring", last_ms), 0.95),
    Row("broadcast-100k-epoll", "broadcast-100k",
        "broadcast to 100k, publish to last client, against the baseline, epoll",
        "at most 1.1", ratio("epoll", last_ms), 1.1),
    Row("cpu-100k-io_uring", "broadcast-100k",
        "server CPU per delivered message in that broadcast, against the baseline, io_uring",
        "at most 0.75", ratio("io_uring", cpu_per_delivery_us), 0.75),
    Row("cpu-100k-epoll", "broadcast-100k",
        "server CPU per delivered message in that broadcast, against the baseline, epoll",
        "at most 1.1", ratio("epoll", cpu_per_delivery_us), 1.1),
    _generator_cpu("100k", "broadcast-100k", "io_uring", "in that broadcast"),
    _generator_cpu("100k", "broadcast-100k", "epoll", "in that broadcast"),
    Row("compressed-100k-cpu", "compressed-100k",
        "server CPU per delivery of 1 KiB of JSON to 100k that take it compressed, against 100k that do not, io_uring",
        "at most 1.1", ratio("compressed", cpu_per_delivery_us, against="plain"), 1.1),
    Row("compressed-100k-bytes", "compressed-100k", "bytes on the wire in that broadcast, against uncompressed",
        "at most 0.5", ratio("compressed", bytes_per_delivery, against="plain"), 0.5),
    Row("compressed-100k-memory", "compressed-100k",
        "user space per idle connection that negotiated compression, against one that did not",
        "at most 1.05", ratio("compressed", user_bytes, against="plain"), 1.05),
    Row("tls-100k-memory", "tls-100k", "user space of an idle `wss://` connection over the same plain one, at 100k, io_uring",
        "256 B", difference("tls", user_bytes, against="plain"), 256, shown=byte_count),
    Row("tls-100k-crowd", "tls-100k", "user space of a `wss://` client of the crowd, at 100k",
        "320 B", figure("tls", crowd_bytes), 320, shown=byte_count),
    Row("tls-100k-last", "tls-100k", "broadcast to 100k over TLS, publish to last client, against plain",
        "at most 1.6", ratio("tls", last_ms, against="plain"), 1.6),
    Row("tls-100k-cpu", "tls-100k", "server CPU per delivered message in that broadcast, against plain",
        "at most 1.9", ratio("tls", cpu_per_delivery_us, against="plain"), 1.9),
    Row("tls-100k-connect", "tls-100k", "connect + handshake + upgrade, 100k, both ends here, against handshakes in memory by rustls alone",
        "at least 0.7", figure("tls", setup_share_of_handshakes), 0.7, at_least=True),
    Row("tls-storm-p99", "tls-storm",
        "50k clients get a push each second while 100k shake hands: publish to delivery, p99, later than without",
        "at most 50 ms", difference("storm", push_p99_ms, against="calm"), 50, shown=milliseconds),
    Row("tls-storm-came", "tls-storm", "of these 100k, clients that got in", "all",
        figure("storm", share_that_came), 1, at_least=True, shown=share),
    Row("tls-1m-memory", "tls-1m", "user space of an idle `wss://` connection, at 1M, io_uring",
        "341 B, 256 B more than a plain one", every("tls", user_bytes), 341, shown=byte_count),
    Row("tls-1m-crowd", "tls-1m", "user space of a `wss://` client of the crowd, at 1M",
        "320 B", every("tls", crowd_bytes), 320, shown=byte_count),
    Row("tls-1m-lost", "tls-1m", "1M `wss://` clients held for ten minutes, pinged each 50 s: connections, pushes and the order of pushes lost",
        "0", every("tls", lost), 0, shown="{:,.0f}".format),
    Row("sessions-100k-setup", "sessions-100k", "JSON clients that connect and subscribe, 100k, both ends here, io_uring",
        "30,000/s", figure("centrifuge-json", setup_rate), 30_000, at_least=True, shown=per_second),
    Row("sessions-100k-setup-ratio", "sessions-100k", "the same against `raw` in the same round",
        "at least 0.6", ratio("centrifuge-json", setup_rate, against="raw"), 0.6, at_least=True),
    Row("sessions-100k-protobuf-ratio", "sessions-100k", "protobuf clients that connect and subscribe, against `raw`",
        "at least 0.6", ratio("centrifuge-protobuf", setup_rate, against="raw"), 0.6, at_least=True),
    Row("sessions-100k-json", "sessions-100k", "broadcast to 100k JSON clients, publish to last client, against `raw`",
        "at most 1.1", ratio("centrifuge-json", last_ms, against="raw"), 1.1),
    Row("sessions-100k-protobuf", "sessions-100k",
        "broadcast to 100k protobuf clients, publish to last client, against `raw`",
        "at most 1.1", ratio("centrifuge-protobuf", last_ms, against="raw"), 1.1),
    Row("sessions-100k-memory", "sessions-100k", "user space per idle JSON client with one subscription, at 100k",
        "256 B (384 B at most)", figure("centrifuge-json", user_bytes), 256, shown=byte_count, tolerated=384),
    Row("tokens-100k-hmac", "tokens-100k", "JSON clients that connect with a token by HMAC and subscribe, against those without",
        "at least 0.85", ratio("hmac", setup_rate, against="none"), 0.85, at_least=True),
    Row("tokens-100k-es256", "tokens-100k", "the same with a token by ES256", "at least 0.5",
        ratio("es256", setup_rate, against="none"), 0.5, at_least=True),
    Row("proxy-connect-rate", "proxy-connect",
        "JSON clients that connect and subscribe while an application is asked about each, both ends and it here",
        "5,000/s", figure("application", asked_rate), 5_000, at_least=True, shown=per_second),
    Row("proxy-connect-memory", "proxy-connect", "resident memory of the server at its peak then, less what it had before",
        "under 128 MiB", figure("application", peak_growth), 128 << 20, shown=quantity.size),
    Row("sessions-1m-memory", "sessions-1m", "user space per idle JSON client with one subscription, at 1M",
        "256 B (384 B at most)", figure("centrifuge-json", user_bytes), 256, shown=byte_count, tolerated=384),
    Row("sessions-1m-crowd", "sessions-1m", "user space of the crowd per idle JSON client, at 1M",
        "at most 96 B", figure("centrifuge-json", crowd_bytes), 96, shown=byte_count),
    *(
        Row(f"rooms-100k-{load.split()[1].rstrip('%')}", "rooms-100k",
            f"1,000 rooms of 100 JSON clients, {load.removeprefix('at ')} of 150,000 deliveries/s, due to delivered, p99",
            "under 1 s", figure(load, room_p99_ms), 1000, shown=milliseconds)
        for load in ("at 50%", "at 80%", "at 100%")
    ),
    *(
        Row(f"rooms-100k-clients-{load.split()[1].rstrip('%')}", "rooms-100k-clients",
            f"the same rooms, members publish: {load.removeprefix('at ')} of 150,000 deliveries/s, due to delivered, p99",
            "under 1 s", every(load, delivery_p99_ms), 1000, shown=milliseconds)
        for load in ("at 50%", "at 80%", "at 100%")
    ),
    Row("rooms-10k-batched-rate", "rooms-10k-batched",
        "100 rooms of 100 JSON clients with `batch_delay` 100 ms, members publish: deliveries",
        "400,000/s, less 1% at most", every("io_uring", deliveries_per_s), DELIVERIES_SHARE * 400_000, at_least=True,
        shown=per_second),
    Row("rooms-10k-batched-p99", "rooms-10k-batched", "in these rooms, due to delivered, p99",
        "under 1 s", every("io_uring", delivery_p99_ms), 1000, shown=milliseconds),
    *(
        row
        for scenario, clients, delay, per_second_, p99 in (
            ("im-200k-1000", "200k clients in 880 groups, 1,000 messages/s", "500 ms", 225_000, 1000),
            ("im-20k-2200", "20k clients in 88 groups, 2,200 messages/s", "100 ms", 500_000, 500),
            ("im-200k-2200", "200k clients in 880 groups, 2,200 messages/s", "1 s", 500_000, 2000),
            ("im-1m", "1M clients in 4,400 groups, 150 messages/s", "1 s", 33_000, 1500),
        )
        for row in (
            Row(f"{scenario}-rate", scenario, f"{clients}, `batch_delay` {delay}: deliveries",
                f"{per_second_:,}/s, less 1% at most", every("io_uring", chat_rate), DELIVERIES_SHARE * per_second_,
                at_least=True, shown=per_second),
            Row(f"{scenario}-p99", scenario, "of these, due to delivered, p99; never if one is missing",
                f"under {p99:,} ms", every("io_uring", chat_p99_ms), p99, shown=milliseconds),
        )
    ),
    _generator_cpu("im-20k-2200", "im-20k-2200", "io_uring", "20k clients in 88 groups, 2,200 messages/s"),
    *(
        Row(f"accuracy-{percentile}", "accuracy",
            f"what the crowd reports of a server whose delays are known, {shown}: error, of what is allowed",
            "at most 2% or 0.1 ms", accuracy_of(percentile), 1)
        for percentile, shown in (("p50", "p50"), ("p99", "p99"), ("p999", "p99.9"))
    ),
    *(
        row
        for driver in ("io_uring", "epoll")
        for row in (
            Row(f"requests-{driver}", "requests", f"messages over WebSocket that the server sends back, both ends here, {driver}",
                "200,000/s, less 1% at most", every(driver, echo_rate), DELIVERIES_SHARE * 200_000, at_least=True,
                shown=per_second),
            # The target was set on a machine where such a program had 287,000/s.
            Row(f"requests-plain-{driver}", "requests", f"the same, against the plain program that sends one at a time, {driver}",
                "at least 0.7", every(driver, echoes_against_plain), 0.7, at_least=True),
        )
    ),
    Row("publish-ack-10k", "publish-ack-10k",
        "10k JSON clients publish over their connections, highest of four rates that answers keep up with, both ends here",
        "100,000/s", ack_rates, 100_000, at_least=True, shown=per_second),
    Row("api-publish-single", "api-publish", "publish by the API, one in a request, connections kept alive, both ends here",
        "15,000/s", figure("single", api_rate), 15_000, at_least=True, shown=per_second),
    Row("api-publish-batch", "api-publish", "publish by the API, a hundred in a request, both ends here",
        "50,000/s", figure("batch", api_rate), 50_000, at_least=True, shown=per_second),
    Row("parked-100k-long-poll", "held-100k", "user space per parked long-poll, one channel, at 100k",
        "150 B (200 B at most)", figure("long-poll", user_bytes), 150, shown=byte_count, tolerated=200),
    Row("parked-100k-sse", "held-100k", "user space per stream of server-sent events, one channel, at 100k",
        "150 B (200 B at most)", figure("sse", user_bytes), 150, shown=byte_count, tolerated=200),
    Row("polls-broadcast-100k", "held-100k",
        "broadcast to 100k parked polls, each answered and asked again, publish to last client, against `raw`",
        "at most 1.5", ratio("long-poll", last_ms, against="raw"), 1.5),
    Row("sse-broadcast-100k", "held-100k",
        "broadcast to 100k streams of server-sent events, publish to last client, against `raw`",
        "at most 1.1", ratio("sse", last_ms, against="raw"), 1.1),
    Row("polls-1m-errors", "polls-1m",
        "1M polls, each held for a random 30 to 90 s and asked again, for 5 minutes: errors, and clients not connected or lost",
        "none", poll_failures, 0, shown="{:,.0f}".format),
    Row("polls-1m-timers", "polls-1m", "of these polls, held for less than 30 s, or for more than 90.1 s",
        "none", lambda runs: [mistimed(run) for run in runs], 0, shown="{:,.0f}".format),
    Row("polls-1m-late", "polls-1m", "from the end of a poll's time to its answer in the server, p99, at most",
        "100 ms", lambda runs: [lateness_p99_ms(run) for run in runs], 100, shown=milliseconds),
    Row("polls-1m-cpu", "polls-1m", "server's share of one core with these polls",
        "at most 60%", figure("io_uring", lambda run: run["server_cpu_share"]), 0.6, shown=share),
    Row("polls-rate-parked", "polls-rate",
        "10k polls parked and answered by a publication, again and again, best second, both ends here",
        "100,000/s", every("parked", poll_rate), 100_000, at_least=True, shown=per_second),
    Row("polls-rate-read", "polls-rate", "10k clients that read what is there, again and again, best second",
        "100,000/s", every("read", poll_rate), 100_000, at_least=True, shown=per_second),
    Row("history-100", "history-100", "history: 100 publications of a channel, command to answer, p99",
        "5 ms", figure("io_uring", answer_p99_ms("history")), 5, shown=milliseconds),
    Row("recovery-10k", "recovery-10k", "10k JSON clients come back at once, 50 publications missed each: all whole",
        "within 3 s", every("io_uring", recovery_seconds), 3, shown=seconds),
    Row("members-100k-page", "members-100k", "member list of a room of 100k, first page of 1,000, p99",
        "20 ms", figure("io_uring", answer_p99_ms("members")), 20, shown=milliseconds),
    Row("members-100k-stats", "members-100k", "number of members of that room, p99",
        "5 ms", figure("io_uring", answer_p99_ms("stats")), 5, shown=milliseconds),
    Row("channels-1m-held", "channels-1m",
        "1M JSON clients with one subscription each, over 100k channels: not connected, or lost",
        "none", not_held, 0, shown="{:,.0f}".format),
    Row("channels-1m-memory", "channels-1m", "user space of the server with all of these",
        "under 500 MB", figure("io_uring", user_bytes_of_all), 500e6, shown=quantity.size),
    Row("channels-1m-publish", "channels-1m", "publish to one of these channels, p99",
        "under 5 ms", figure("io_uring", probe_p99_ms), 5, shown=milliseconds),
    Row("broadcast-1m-io_uring", "broadcast-1m",
        "broadcast to 1M, publish to last client, against the baseline",
        "at most 0.9", ratio("io_uring", last_ms), 0.9),
    Row("broadcast-1m-seconds", "broadcast-1m", "the same in seconds",
        "about 6 s", figure("io_uring", lambda run: last_ms(run) / 1000), 6.5, shown=seconds),
    _generator_cpu("1m", "broadcast-1m", "io_uring", "in that broadcast to 1M"),
    Row("broadcast-1m-hash", "broadcast-1m-hash",
        "broadcast to 1M with the larger connection hash, against the baseline with it",
        "at most 0.9", ratio("io_uring", last_ms), 0.9),
    Row("broadcast-1m-hash-seconds", "broadcast-1m-hash", "the same in seconds",
        "4.7 s", figure("io_uring", lambda run: last_ms(run) / 1000), 4.7, shown=seconds),
    Row("connect-1m", "broadcast-1m", "1M connections open and subscribed, both ends here",
        "40 s", figure("io_uring", setup_seconds), 40, shown=seconds),
    Row("connect-2m", "broadcast-2m", "2M connections open and subscribed, both ends here",
        "50 s", figure("io_uring", setup_seconds), 50, shown=seconds),
    Row("broadcast-2m-seconds", "broadcast-2m", "broadcast to 2M, publish to last client",
        "at most 18 s", figure("io_uring", lambda run: last_ms(run) / 1000), 18, shown=seconds),
    _memory("2m", "io_uring", "2M"),
    Row("idle-1m", "idle-1m", "a million connections idle with 25 s pings answered: server's share of one core",
        "at most 45%", figure("io_uring", lambda run: run["server_cpu_share"]), 0.45, shown=share),
    Row("latency-1m", "latency-1m",
        "publish to a 1-subscriber channel while 1M idle connections are open, pings off, p99",
        "under 2 ms", figure("io_uring", lambda run: run["probe"]["fanout"]["overall"]["p99_ms"]), 2.0,
        shown=milliseconds),
    Row("soak-lost", "soak", "an hour at 500,000 connections, 1% of them replaced a minute: connections lost",
        "none", lambda runs: [run["report"]["churn"]["lost"] for run in runs], 0, shown="{:,.0f}".format),
    Row("soak-gaps", "soak", "in that hour, publications missing or repeated at any client",
        "none", lambda runs: [missed(run) for run in runs], 0, shown="{:,.0f}".format),
    Row("soak-drift", "soak", "in that hour, growth of the server's resident memory",
        "under 1%", lambda runs: [run["server_rss_bytes_drift"] for run in runs], 0.01, shown="{:+.2%}".format),
]


def named(name):
    """The rows that `--only name` selects: the row or the scenario of that name, or else the rows whose name starts so."""
    exact = [row for row in ROWS if name in (row.name, row.scenario)]
    return exact or [row for row in ROWS if row.name.startswith(name + "-")]
