"""The pages: from a user's request to views of plain values. They know neither HTTP nor HTML."""
