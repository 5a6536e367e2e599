"""Derivatives of answers in the data of their problems, by the implicit function theorem."""
