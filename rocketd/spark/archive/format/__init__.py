"""The files of an archive: their names and contents, written completely or not at all."""
