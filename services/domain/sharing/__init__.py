"""How departments share hosts: fair division, contracts of lending, loans, and whose demand goes unmet by whose right."""
