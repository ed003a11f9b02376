"""The version of this program, by semantic versioning: files of 1.0.0 and of every later version load."""

VERSION = "2.0.0"
