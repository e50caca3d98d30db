"""Bundles as files that people share: `pack` and `unpack` a ZIP archive, and `plan` what taking one in would change."""

from onetool.sources.bundles.archive.plan import Plan, Row, plan
from onetool.sources.bundles.archive.zip_file import Unpacked, pack, unpack

__all__ = ["Plan", "Row", "Unpacked", "pack", "plan", "unpack"]
