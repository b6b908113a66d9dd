"""Tell the story on the minicluster in the directory that is the only argument."""

import sys

from quickstart_lib.stage import Stage, StoryError
from quickstart_lib.story import tell

if __name__ == "__main__":
    stage = Stage(sys.argv[1])
    try:
        tell(stage)
    except StoryError as error:
        print(f"quickstart: NOT as it should be: {error}", file=sys.stderr)
        print(f"quickstart: the logs are in {stage.directory}/log; head/engine.log says most", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
