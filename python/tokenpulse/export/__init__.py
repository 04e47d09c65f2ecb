"""Figures and rules as other tools take them: text for Prometheus."""
