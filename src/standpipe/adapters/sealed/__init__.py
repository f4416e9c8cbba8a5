"""Connections whose two ends have proved that they know the cluster's secret. No socket here."""
