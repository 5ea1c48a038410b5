"""Admission policies: documents, compilation, evaluation, revisions, cases."""
