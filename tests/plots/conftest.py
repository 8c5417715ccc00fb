"""Pictures of these tests are drawn without work that is done again and again."""

from plots.quick_drawing import drawn_quickly  # noqa: F401 -- a fixture for all tests below
