"""The agent beside HAProxy: it keeps a backend's servers in step with a department's instances, and publishes its signals.

    events, instance.list ──▶ table ──┐
                                      ├──▶ reconciler ──▶ commands ──▶ HAProxy (Runtime API: a unix socket)
    HAProxy's own state ────▶ slots ──┤
                                      ├──▶ watch ───────▶ drained, unready, ready ──▶ admission
                                      └──▶ flow ────────▶ signals cpu, requests, sessions ──▶ the department's scheduler

`table`, `slots`, `reconciler`, `watch` and `flow` are pure; `agent` gives them clock, socket and broker.
"""
