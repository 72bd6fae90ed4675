import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent)) # `house`, wherever pytest is started
