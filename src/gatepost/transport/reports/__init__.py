"""Delivery status notifications (SPEC T13): who is told what and when (`rules`), and the messages (`builder`)."""
