"""Configuration: how keys work (`registry`), and which keys exist (all other modules).

An import of any module of this package declares every key, so that `registry.load` knows them all.
"""

from standpipe.config import kafka as kafka
from standpipe.config import keys as keys
from standpipe.config import lags as lags
from standpipe.config import listeners as listeners
from standpipe.config import liveness as liveness
from standpipe.config import schema_registry as schema_registry
from standpipe.config import spark as spark
from standpipe.config import statements as statements
from standpipe.config import workers as workers
