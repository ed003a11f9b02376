"""The version of this program, by semantic versioning: files written by 1.x load in 1.y."""

VERSION = "1.0.0"
