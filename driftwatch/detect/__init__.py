"""References and length shift against them. Pure; adds columns, never pages."""
