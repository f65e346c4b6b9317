"""Pages: their data and their texts, and the texts of ``explain``. Pure."""
