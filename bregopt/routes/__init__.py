"""The routes and what they share: registry, routing, driver, settings, progress, answers."""
