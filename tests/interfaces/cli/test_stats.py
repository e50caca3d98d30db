"""`onetool stats`: tables for people, JSON for programs, a page for a browser, and words where it can't."""

import json
import os
import re
import stat
from pathlib import Path

import pytest
from helpers import cli

from onetool.services.stats.report import MARK
