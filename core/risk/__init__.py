"""The risk scan: places of a stranger's project that a migration from GPU to TPU will touch."""

from core.risk.scan import Hit as Hit
from core.risk.scan import Scan as Scan
from core.risk.scan import scan as scan
from core.risk.tree import Listing as Listing
from core.risk.tree import list_files as list_files
