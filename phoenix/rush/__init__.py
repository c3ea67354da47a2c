"""The experiment `make rush`: a real load on real instances behind a real load balancer, while batch jobs run.

    shape ──▶ phoenix load ──▶ load balancer ──▶ instances (processes that burn CPU) ─┐
                                    │ signals                                         ├─ one embedded cloud, hosts move
    stream of jobs ───────────▶ door ▼ ──────────────▶ jobs (processes) ──────────────┘
                                        journal, samples ──▶ recording ──▶ account, stages ──▶ report, plot

`play` records one variant; everything behind the recording is pure.
"""
