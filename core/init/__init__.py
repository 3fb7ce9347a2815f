"""``pilotage init``: reading a stranger's project, and a configuration to start from."""

from core.init.read import InitError as InitError
from core.init.read import read_project as read_project
from core.init.report import as_json as as_json
from core.init.report import describe as describe
from core.init.write import draft as draft
from core.init.write import place_of as place_of
from core.init.write import write as write
