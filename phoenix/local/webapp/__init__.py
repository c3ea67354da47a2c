"""The default web instance: a small HTTP server whose requests cost real CPU time."""
