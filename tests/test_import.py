"""What `import batchnav` pulls in: nothing, so that it costs nothing. eval/speed_load.py has the seconds."""

import subprocess
import sys

SEEN = """
import sys
before = set(sys.modules)
import batchnav
print(*{name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)
"""


def test_import_pulls_in_no_other_package():
    found = subprocess.run([sys.executable, "-c", SEEN], capture_output=True, text=True, check=True).stdout
    assert found.split() == ["batchnav"]
