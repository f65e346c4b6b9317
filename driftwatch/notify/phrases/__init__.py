"""The phrases that templates of a rule's page name (rulebook/page_form.py), by what they say."""
