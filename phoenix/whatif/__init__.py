"""What another configuration would have done with what was really asked for (docs/howto/whatif.md).

GET /v1/record ──▶ record (lines) ──▶ past (the fold up to `since`, and what is learned of the period)
                                        │ copied
                                        ├──▶ stage, present configuration ──▶ outcome ─┐
                                        └──▶ stage, new configuration     ──▶ outcome ─┴──▶ compare ──▶ table, JSON, plot
"""
