"""The routes and what they share: registry, driver, settings, progress, answers."""
