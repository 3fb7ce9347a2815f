"""The configuration of a session: ``pilotage.toml``, checked key by key.

Paths in the file are relative to the file. What is stored with the session (``to_json``) has
them absolute, so that a recorder started anywhere later means the same files.
"""

from core.config.reading import load as load
from core.config.sections import DRIVERS as DRIVERS
from core.config.sections import LATER_DRIVERS as LATER_DRIVERS
from core.config.sections import POLICIES as POLICIES
from core.config.sections import SECTIONS as SECTIONS
from core.config.sections import Agent as Agent
from core.config.sections import Budgets as Budgets
from core.config.sections import ConfigError as ConfigError
from core.config.sections import Guard as Guard
from core.config.sections import Metric as Metric
from core.config.sections import Operator as Operator
from core.config.sections import Prices as Prices
from core.config.sections import Project as Project
from core.config.sections import Recorder as Recorder
from core.config.sections import Reference as Reference
from core.config.sections import SessionConfig as SessionConfig
from core.config.sections import Target as Target
