"""For who runs the control plane: who leads, does the journal flow, does OpenNebula do as told, what runs full or out."""

from __future__ import annotations

from typing import Final

from phoenix.dashboards.form import (
    Dashboard,
    Panel,
    Query,
    Row,
    increase,
    most_by,
    quantiles,
    rate,
    series,
    total,
)

_LEADERS: Final = Row(
    "Services",
    (
        Panel(
            "Leaders",
            "1: a replica of this process leads. The monitor never does, since it writes nothing.",
            "none",
            (Query(f"max by (process) ({series('phoenix_leader', process='!monitor')})", "{{process}}"),),
            stepped=True,
            width=8,
        ),
        Panel(
            "Leader changes",
            "New leaders, in each interval of the graph. More than a restart explains: two replicas fight, or one hangs.",
            "short",
            (
                Query(
                    f"max by (process) ({increase('phoenix_leader_changes_total', process='!monitor')})", "{{process}}"
                ),
            ),
            width=8,
        ),
        Panel(
            "Scraped",
            "1: Prometheus reached this process the last time it tried.",
            "none",
            (Query(f"min by (process) ({series('up', job='phoenix')})", "{{process}}"),),
            stepped=True,
            width=8,
        ),
        Panel(
            "CPU",
            "Of each process, in parts of one core.",
            "percentunit",
            (Query(f"max by (process) ({rate('process_cpu_seconds_total')})", "{{process}}"),),
            width=8,
        ),
        Panel(
            "Memory",
            "Of each process, resident.",
            "bytes",
            (Query(f"max by (process) ({series('process_resident_memory_bytes')})", "{{process}}"),),
            width=8,
        ),
        Panel(
            "Connected to the broker",
            "1: the connection of this process stands.",
            "none",
            (Query(f"min by (process) ({series('phoenix_nats_connected')})", "{{process}}"),),
            stepped=True,
            width=8,
        ),
        Panel(
            "Requests granted",
            "By kind, a second.",
            "ops",
            (Query(total(rate("phoenix_requests_granted_total"), "kind"), "{{kind}}"),),
            stacked=True,
        ),
        Panel(
            "Requests refused",
            "By code, a second. phoenix audit says whose and why.",
            "ops",
            (Query(total(rate("phoenix_requests_refused_total"), "code"), "{{code}}"),),
            stacked=True,
        ),
    ),
)

_JOURNAL: Final = Row(
    "Journal",
    (
        Panel(
            "Append latency, 95 %",
            "From sending an envelope until it was folded by its own writer: the broker's disk and the reader are in it.",
            "s",
            (most_by("process", "phoenix_journal_append_seconds"),),
            width=8,
        ),
        Panel(
            "Decisions, 95 %",
            "One run of a core's decide.",
            "s",
            (most_by("process", "phoenix_decide_seconds"),),
            width=8,
        ),
        Panel(
            "Reader lag",
            "Messages that are stored, as far as is known, and not folded yet.",
            "short",
            (Query(f"max by (process) ({series('phoenix_reader_lag_messages')})", "{{process}}"),),
            width=8,
        ),
        Panel(
            "Facts",
            "Valid facts a second, the twelve kinds of which there are most.",
            "ops",
            (
                Query(
                    f"topk(12, {total(rate('phoenix_facts_applied_total', process='monitor'), 'kind')} > 0)", "{{kind}}"
                ),
            ),
            stacked=True,
            width=8,
        ),
        Panel(
            "What should not be",
            "Void facts (a few after a failover are normal), appends that were refused, messages that are no envelopes, errors "
            "of connections; in each interval of the graph.",
            "short",
            (
                Query(total(increase("phoenix_custody_void_facts_total"), "reason"), "void: {{reason}}"),
                Query(total(increase("phoenix_appends_refused_total"), "reason"), "append refused: {{reason}}"),
                Query(f"max({increase('phoenix_garbage_total')})", "garbage"),
                Query(total(increase("phoenix_nats_errors_total")), "nats errors"),
                Query(f"max({series('phoenix_journal_full')})", "journal full"),
                Query(f"max({series('phoenix_journal_reserved')})", "journal for what ends alone"),
            ),
            width=8,
        ),
        Panel(
            "Since the last snapshot",
            "Messages that a restart would have to fold.",
            "short",
            (
                Query(
                    f"max by (process) ({series('phoenix_reader_position')} - {series('phoenix_snapshot_position')})",
                    "{{process}}",
                ),
            ),
            width=8,
        ),
    ),
)

_OPENNEBULA: Final = Row(
    "OpenNebula",
    (
        Panel(
            "Calls",
            "By method and outcome, a second (docs/reference/opennebula-calls.md: what each outcome means).",
            "ops",
            (Query(total(rate("phoenix_opennebula_calls_total"), "method", "outcome"), "{{method}} {{outcome}}"),),
            stacked=True,
        ),
        Panel(
            "Duration of calls, 95 %",
            "By method.",
            "s",
            (most_by("method", "phoenix_opennebula_call_seconds"),),
        ),
        Panel(
            "Failures",
            "Calls that failed, by what went wrong, a second.",
            "ops",
            (Query(total(rate("phoenix_opennebula_failures_total"), "kind"), "{{kind}}"),),
            stacked=True,
            width=8,
        ),
        Panel(
            "No answer, no agreement, for",
            "down: for so long OpenNebula gives no answer that is one; the others: for so long the oldest disagreement of that "
            "kind has been seen.",
            "s",
            (
                Query(f"max by (kind) ({series('phoenix_opennebula_disagreement_seconds')})", "{{kind}}"),
                Query(
                    f"(time() - {series('phoenix_opennebula_down_since_timestamp_seconds')}) * "
                    f"({series('phoenix_opennebula_down_since_timestamp_seconds')} > bool 0)",
                    "down",
                ),
            ),
            width=8,
        ),
        Panel(
            "Ledger and OpenNebula disagree",
            "stray: a VM of ours that the journal does not know; missing: the journal has it, OpenNebula does not; elsewhere: "
            "on another host.",
            "short",
            (Query(total(series("phoenix_opennebula_disagreements"), "kind"), "{{kind}}"),),
            stepped=True,
            width=8,
        ),
        Panel(
            "VMs",
            "Open VMs by what OpenNebula said of them last.",
            "short",
            (Query(total(series("phoenix_vms"), "state"), "{{state}}"),),
            stacked=True,
            stepped=True,
            width=8,
        ),
        Panel(
            "Wanted and doomed",
            "Ranks of live attempts without a VM, VMs that wait for a job, VMs that must end. None of them should stay.",
            "short",
            (
                Query(total(series("phoenix_vms_wanted")), "wanted"),
                Query(total(series("phoenix_vms_waiting")), "waiting"),
                Query(total(series("phoenix_vms_doomed")), "doomed"),
            ),
            stepped=True,
            width=8,
        ),
        Panel(
            "End of a VM",
            "From the first terminate until OpenNebula does not have it any more: the hypervisor's part of a reclaim.",
            "s",
            quantiles("phoenix_vm_termination_seconds"),
            width=8,
        ),
    ),
)

_ROOM: Final = Row(
    "What runs full, or out",
    (
        Panel(
            "Streams",
            "How full each is. journal, snapshots and objects refuse what is too much; events and audit let the oldest go.",
            "percentunit",
            (
                Query(f"{series('phoenix_stream_bytes')} / {series('phoenix_stream_limit_bytes')}", "{{stream}}"),
                Query(f"{series('phoenix_jetstream_bytes')} / {series('phoenix_jetstream_limit_bytes')}", "all"),
            ),
            width=8,
            most=1,
        ),
        Panel(
            "Disks",
            "Free parts of the disks with the data directory, the archive and the broker's store.",
            "percentunit",
            (Query(f"{series('phoenix_disk_free_bytes')} / {series('phoenix_disk_bytes')}", "{{what}}"),),
            width=8,
            most=1,
        ),
        Panel(
            "History, archive, journal",
            "What grows as long as nobody deletes it.",
            "bytes",
            (
                Query(series("phoenix_history_bytes"), "history"),
                Query(series("phoenix_archive_bytes"), "archive"),
                Query(series("phoenix_stream_bytes", stream="journal"), "journal"),
            ),
            width=8,
        ),
        Panel(
            "Journal behind the archive",
            "Messages that are in the broker alone. About [journal] keep_messages when all is well.",
            "short",
            (
                Query(
                    f"max({series('phoenix_reader_position', process='monitor')}) - max({series('phoenix_archive_position')})",
                    "messages",
                ),
            ),
            width=8,
        ),
        Panel(
            "Certificates end in",
            "Of https and tls addresses of the configuration, as they show them.",
            "s",
            (Query(f"{series('phoenix_certificate_expiry_timestamp_seconds')} - time()", "{{endpoint}}"),),
            width=8,
        ),
        Panel(
            "Tokens end in",
            "The first of each user's that was issued with an end (phoenix token).",
            "s",
            (Query(f"{series('phoenix_token_expiry_timestamp_seconds')} - time()", "{{user}}"),),
            width=8,
        ),
    ),
)

CONTROL: Final = Dashboard(
    "phoenix-control",
    "Phoenix: control plane",
    "Services, journal, OpenNebula, and what runs full or out.",
    (_LEADERS, _JOURNAL, _OPENNEBULA, _ROOM),
)
