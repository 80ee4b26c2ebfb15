"""The emulators, judged by the official clients, unchanged."""
